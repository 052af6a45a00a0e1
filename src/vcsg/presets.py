"""Every method of the family as an optimizer class of its own, with its options as typed arguments.

A class takes its docstring and its method from the function of the catalogue that it names; the options stand here
once more so that editors and type checkers know them. Those that all methods have are `CommonOptions`.
"""

from __future__ import annotations

from typing import Unpack

from torch.optim.optimizer import ParamsT

from vcsg.method import catalogue
from vcsg.optimizer import FiniteSumOptimizer
from vcsg.optimizer_options import CommonOptions


class GD(FiniteSumOptimizer, method=catalogue.gd):
    def __init__(self, params: ParamsT, n: int | None = None, **common: Unpack[CommonOptions]) -> None:
        super().__init__(params, n, **common)


class SGD(FiniteSumOptimizer, method=catalogue.sgd):
    def __init__(
        self, params: ParamsT, n: int | None = None, *, b: int | None = None, **common: Unpack[CommonOptions]
    ) -> None:
        super().__init__(params, n, b=b, **common)


class SVRG(FiniteSumOptimizer, method=catalogue.svrg):
    def __init__(self, params: ParamsT, n: int | None = None, *, b: int = 1, **common: Unpack[CommonOptions]) -> None:
        super().__init__(params, n, b=b, **common)


class GrowingSVRG(FiniteSumOptimizer, method=catalogue.growing_svrg):
    def __init__(
        self,
        params: ParamsT,
        n: int | None = None,
        *,
        B: int = 1024,
        growth: float = 4.0,
        b: int = 8,
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(params, n, B=B, growth=growth, b=b, **common)


class SCSG(FiniteSumOptimizer, method=catalogue.scsg):
    def __init__(
        self,
        params: ParamsT,
        n: int | None = None,
        *,
        eps: float | None = None,
        K: float = 12.0,
        b: int = 1,
        B_min: int = 2,
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(params, n, eps=eps, K=K, b=b, B_min=B_min, **common)


class BatchingSVRG(FiniteSumOptimizer, method=catalogue.batching_svrg):
    def __init__(
        self,
        params: ParamsT,
        n: int | None = None,
        *,
        B: int | None = None,
        b: int | None = None,
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(params, n, B=B, b=b, **common)


class WeightedSVRG(FiniteSumOptimizer, method=catalogue.weighted_svrg):
    def __init__(
        self,
        params: ParamsT,
        n: int | None = None,
        *,
        lam: float = catalogue.LAMBDA_FIRST,
        B: int | None = None,
        b: int | None = None,
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(params, n, lam=lam, B=B, b=b, **common)


class BiasedSVRG(FiniteSumOptimizer, method=catalogue.biased_svrg):
    def __init__(
        self,
        params: ParamsT,
        n: int | None = None,
        *,
        lam: float = catalogue.LAMBDA_SECOND,
        B: int | None = None,
        b: int | None = None,
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(params, n, lam=lam, B=B, b=b, **common)


class VCSG(FiniteSumOptimizer, method=catalogue.vcsg):
    def __init__(
        self,
        params: ParamsT,
        n: int | None = None,
        *,
        eps: float | None = None,
        K: float = 12.0,
        sigma: float | None = None,
        rho: float = 0.9,
        B_min: int | None = None,
        b_min: int | None = None,
        first_epoch: bool | None = None,
        bounded: bool | None = None,
        memory: int | None = None,
        measure_again: bool = False,
        comparison: str = "norm",
        paper: bool = False,
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(
            params,
            n,
            eps=eps,
            K=K,
            sigma=sigma,
            rho=rho,
            B_min=B_min,
            b_min=b_min,
            first_epoch=first_epoch,
            bounded=bounded,
            memory=memory,
            measure_again=measure_again,
            comparison=comparison,
            paper=paper,
            **common,
        )


class PaperSGD(FiniteSumOptimizer, method=catalogue.paper_sgd):
    def __init__(self, params: ParamsT, n: int | None = None, **common: Unpack[CommonOptions]) -> None:
        super().__init__(params, n, **common)


class PaperSVRG(FiniteSumOptimizer, method=catalogue.paper_svrg):
    def __init__(self, params: ParamsT, n: int | None = None, **common: Unpack[CommonOptions]) -> None:
        super().__init__(params, n, **common)


class SPIDER(FiniteSumOptimizer, method=catalogue.spider):
    def __init__(
        self, params: ParamsT, n: int | None = None, *, b: int | None = None, **common: Unpack[CommonOptions]
    ) -> None:
        super().__init__(params, n, b=b, **common)


class PAGE(FiniteSumOptimizer, method=catalogue.page):
    def __init__(
        self, params: ParamsT, n: int | None = None, *, b: int | None = None, **common: Unpack[CommonOptions]
    ) -> None:
        super().__init__(params, n, b=b, **common)


class STORM(FiniteSumOptimizer, method=catalogue.storm):
    def __init__(
        self,
        params: ParamsT,
        n: int | None = None,
        *,
        a: float = 0.3,
        b: int | None = None,
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(params, n, a=a, b=b, **common)


class AlphaSVRG(FiniteSumOptimizer, method=catalogue.alpha_svrg):
    def __init__(
        self,
        params: ParamsT,
        n: int | None = None,
        *,
        alpha: float = 0.75,
        epochs: int = 30,
        b: int | None = None,
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(params, n, alpha=alpha, epochs=epochs, b=b, **common)


class SAGA(FiniteSumOptimizer, method=catalogue.saga):
    def __init__(
        self, params: ParamsT, n: int | None = None, *, b: int = 1, memory: int = 2**30, **common: Unpack[CommonOptions]
    ) -> None:
        super().__init__(params, n, b=b, memory=memory, **common)


class SNVRG(FiniteSumOptimizer, method=catalogue.snvrg):
    def __init__(self, params: ParamsT, n: int | None = None, **common: Unpack[CommonOptions]) -> None:
        super().__init__(params, n, **common)


class Momentum(FiniteSumOptimizer, method=catalogue.momentum):
    def __init__(
        self,
        params: ParamsT,
        n: int | None = None,
        *,
        beta: float = 0.9,
        b: int | None = None,
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(params, n, beta=beta, b=b, **common)


class Adam(FiniteSumOptimizer, method=catalogue.adam):
    def __init__(
        self,
        params: ParamsT,
        n: int | None = None,
        *,
        beta: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
        b: int | None = None,
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(params, n, beta=beta, beta2=beta2, eps=eps, b=b, **common)


class Muon(FiniteSumOptimizer, method=catalogue.muon):
    def __init__(
        self,
        params: ParamsT,
        n: int | None = None,
        *,
        beta: float = 0.95,
        b: int | None = None,
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(params, n, beta=beta, b=b, **common)


class MARS(FiniteSumOptimizer, method=catalogue.mars):
    def __init__(
        self,
        params: ParamsT,
        n: int | None = None,
        *,
        beta: float = 0.95,
        scaling: float = 0.025,
        beta2: float = 0.99,
        b: int | None = None,
        **common: Unpack[CommonOptions],
    ) -> None:
        super().__init__(params, n, beta=beta, scaling=scaling, beta2=beta2, b=b, **common)


class Auto(FiniteSumOptimizer, method=catalogue.auto):
    def __init__(
        self, params: ParamsT, n: int | None = None, *, b: int | None = None, **common: Unpack[CommonOptions]
    ) -> None:
        super().__init__(params, n, b=b, **common)
