"""The methods, each a composition of weights, a schedule and the length of the inner loop; the registry by name.

A method is data. Registering a function that returns a `Method` is all it takes to add one: the optimizer runs it,
and the shared tests check it. "l." is a line of the paper's source; docs/paper.md says how it is read.
"""

from __future__ import annotations

import logging
import math
from numbers import Integral

from vcsg.method.definition import Method
from vcsg.method.registry import register
from vcsg.method.schedules import (
    RECENT,
    Bounded,
    Given,
    Growing,
    GrowingAnchor,
    NestedLoops,
    PaperBaseline,
    PowerLaw,
    VarianceControlled,
)
from vcsg.method.step_rules import Adaptive, Orthogonal, Plain, StepRule
from vcsg.method.weights import TESTS, Constant, Fading, Rule, Tested, Weights, biased, weighted

SVRG_WEIGHTS = Weights(1, -1, 1)
HALF = Weights(0.5, -0.5, 0.5)
LAMBDA_FIRST = (15 - math.sqrt(97)) / 16
"""λ* of the first regime (l.320), about 0.3219."""
LAMBDA_SECOND = 5 / 8
"""λ* of the second regime (l.326)."""
ALG_4_K = 12.0
"""K in B = K·S*/ε as Alg 4 has it (l.288)."""

logger = logging.getLogger("vcsg")


@register
def gd() -> Method:
    """Gradient descent (Table 1): v = ∇f(x), one step of η = 1/L per pass over all n samples."""
    schedule = PowerLaw(Given(), beta=1, alpha=0)
    return Method("gd", {"": Constant(Weights(0, 0, 1))}, schedule, "fixed", gamma=1)


@register
def sgd(b: int | None = None) -> Method:
    """Stochastic gradient descent (Table 1): v = ∇f_I(x), η = 1/(3L); an epoch is ⌈n/b⌉ steps.

    Args:
        b: the mini-batch size; None is 64, or n where n is smaller.
    """
    schedule = PowerLaw(Given(), _optional_size("b", b), beta=1, b_max=64, alpha=0)
    return Method("sgd", {"": Constant(Weights(1, 0, 0))}, schedule, "fixed")


@register
def svrg(b: int = 1) -> Method:
    """SVRG (l.90; Johnson and Zhang 2013): v = ∇f_I(x) − ∇f_I(y) + ∇f(y).

    η = (b/n)^{2/3}/(3L) and ⌈n/b⌉ steps per anchor (Reddi et al. 2016).

    Args:
        b: the mini-batch size.
    """
    schedule = PowerLaw(Given(), _size("b", b), alpha=2 / 3)
    return Method("svrg", {"": Constant(SVRG_WEIGHTS)}, schedule, "fixed")


@register
def growing_svrg(B: int = 1024, growth: float = 4.0, b: int = 8) -> Method:
    """SVRG whose anchor grows: B_j = B·growth^{j−1}·S*/S*_1, at most n, η = 1/L, ⌈B_j/b⌉ steps per anchor.

    Early epochs need no exact ∇f and cost little; the last ones are SVRG with anchors of all n. The growing batches are
    those of Babanezhad et al. 2015. The step is that of linear models, where L bounds every f_i.

    Args:
        B: the first anchor; n where n is smaller.
        growth: the factor, above 1.
        b: the mini-batch size.
    """
    if not 1 < growth < math.inf:
        raise ValueError(f"growth = {growth!r}: give a finite number above 1")
    schedule = GrowingAnchor(_anchor_floor(B), float(growth), _size("b", b))
    return Method("growing-svrg", {"": Constant(SVRG_WEIGHTS)}, schedule, "fixed", gamma=1)


@register
def scsg(eps: float | None = None, K: float = ALG_4_K, b: int = 1, B_min: int = 2) -> Method:
    """SCSG (Lei et al. 2017): SVRG with an anchor of B_j ≤ n samples, a geometric N_j, η = (b/B)^{2/3}/(3L).

    Args:
        eps: None for B_j = min(⌈j^{3/2}⌉, n); a target ε for ‖∇f‖² for B_j = K·S*/ε, with a first anchor of n.
        K: the constant in K·S*/ε; without `eps` it has no effect.
        b: the mini-batch size.
        B_min: the smallest anchor when `eps` is given.
    """
    _tell_of_K(eps, K)
    size = Growing() if eps is None else Bounded(_positive("eps", eps), _positive("K", K), _anchor_floor(B_min))
    return Method("scsg", {"": Constant(SVRG_WEIGHTS)}, PowerLaw(size, _size("b", b), alpha=2 / 3), "geometric")


def _batched(name: str, weights: Weights, B: int | None, b: int | None) -> Method:
    """Alg 1 to 3 differ in their weights alone."""
    schedule = PowerLaw(Given(_optional_size("B", B)), _optional_size("b", b))
    return Method(name, {"": Constant(weights)}, schedule, "geometric")


@register
def batching_svrg(B: int | None = None, b: int | None = None) -> Method:
    """Batching SVRG (Alg 1, l.153): SVRG's v, anchors of B samples, geometric N_j, η = (b/B)^{1/2}/(3L).

    Args:
        B: the anchor size; None is n.
        b: the mini-batch size; None is B^{1/4}.
    """
    return _batched("batching-svrg", SVRG_WEIGHTS, B, b)


@register
def weighted_svrg(lam: float = LAMBDA_FIRST, B: int | None = None, b: int | None = None) -> Method:
    """Batching SVRG with the weighted "unbiased" estimator (Alg 2, l.176): (1−λ, −λ, λ).

    The paper's name; with a full anchor E v = (1−λ)∇f(x), a scaled gradient, and for λ ≠ ½ the noise
    (1−2λ)∇f_I(x*) remains at a minimum.

    Args:
        lam: λ in (0, 1).
        B: the anchor size; None is n.
        b: the mini-batch size; None is B^{1/4}.
    """
    return _batched("weighted-svrg", weighted(_fraction("lam", lam)), B, b)


@register
def biased_svrg(lam: float = LAMBDA_SECOND, B: int | None = None, b: int | None = None) -> Method:
    """Batching SVRG with the biased estimator (Alg 3, l.198): (1−λ, −(1−λ), λ).

    Args:
        lam: λ in (0, 1).
        B: the anchor size; None is n.
        b: the mini-batch size; None is B^{1/4}.
    """
    return _batched("biased-svrg", biased(_fraction("lam", lam)), B, b)


PRINTED = VarianceControlled()
"""The schedule of VCSG as the paper has it."""
STEADY = VarianceControlled(B_min=None, b_min=None, first_epoch=False, bounded=True, memory=4, settle=True)
"""The schedule of VCSG by default; docs/engineering/defaults.md has the measurements."""
STEADY_GAMMA = 2 / 3
"""γ of VCSG by default: its v is about half a gradient, so this is the 1/(3L) of a method with a whole one."""


@register
def vcsg(
    eps: float | None = None,
    K: float = ALG_4_K,
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
) -> Method:
    """VCSG (Alg 4, l.286): batch size, mini-batch size, step size and estimator follow the measured variance S*.

    B_j = min(K·S*/ε, n·S*/(S* + 0.14·√n·σ·ρ^{2j})). Where the first term is the smaller: b = B^{1/4},
    η = γ/L, and Alg 2 with λ = (15−√97)/16 if `comparison` holds, else (½, −½, ½). Where the second is:
    b = 1, η = γ/(L√B), and Alg 3 with λ = 5/8. Where `b_min` raises b there, η grows with b, up to γ/L.
    The defaults, with γ = 2/3, are chosen so that no run gets stuck;
    `paper=True` has those of the paper, with γ = 1/3.

    Args:
        eps: the target ε for ‖∇f‖²; None derives it from the S* at the second anchor, so that B_j is n/100 there; with
            `paper` from that at the first, so that the second has n/100 samples.
        K: 12 as in Alg 4 (l.288); 1 is the theorem's (l.318). Without `eps` it has no effect: the ε that is derived
            is proportional to it.
        sigma: σ; None is the S* at the second anchor, with `paper` that at the first.
        rho: ρ in (0, 1); 0.99 suits a coarse ε ≥ 1e-3.
        B_min: the smallest anchor; None is n/10 and at least 32, with `paper` 32.
        b_min: a floor for b; None is 16, or n where n is smaller, with `paper` 1. A model with BatchNorm in training
            mode needs at least 2.
        first_epoch: start with the first epoch of the paper's experiments (l.377); None is False, with `paper` True.
        bounded: draw the number of inner steps with min(B_j, the size of the anchor in hand) in place of B_j; None is
            True, with `paper` False.
        memory: S* in the formula for B_j is the largest of that many last anchors; None is 4, with `paper` 1.
        measure_again: measure an L that is not given once more, a pass later, and take what is less than half of it.
        comparison: how l.300 compares two vectors: "norm" compares their norms, "elementwise" their coordinates,
            "lemma" tests the inequality that the proof needs, "never" always takes (½, −½, ½).
        paper: take the printed algorithm where options are not given, and γ = 1/3 in place of 2/3.
    """
    if comparison not in (*TESTS, "never"):
        raise ValueError(f"comparison = {comparison!r}: choose one of {', '.join((*TESTS, 'never'))}")
    for name, flag in (
        ("paper", paper),
        ("first_epoch", first_epoch),
        ("bounded", bounded),
        ("measure_again", measure_again),
    ):
        if flag is not None and not isinstance(flag, bool):
            raise ValueError(f"{name} = {flag!r}: give True or False")
    if memory is not None and not 1 <= _size("memory", memory) <= RECENT:
        raise ValueError(f"memory = {memory!r}: give a number of anchors from 1 to {RECENT}")
    own = PRINTED if paper else STEADY
    _tell_of_K(eps, K)
    schedule = VarianceControlled(
        eps=None if eps is None else _positive("eps", eps),
        K=_positive("K", K),
        sigma=None if sigma is None else _at_least_zero("sigma", sigma),
        rho=_fraction("rho", rho),
        B_min=own.B_min if B_min is None else _anchor_floor(B_min),
        b_min=own.b_min if b_min is None else _size("b_min", b_min),
        first_epoch=own.first_epoch if first_epoch is None else first_epoch,
        bounded=own.bounded if bounded is None else bounded,
        memory=own.memory if memory is None else memory,
        settle=own.settle,
        measure_again=measure_again,
    )
    first: Rule = Constant(HALF)
    if comparison != "never":
        first = Tested(comparison, weighted(LAMBDA_FIRST), HALF)
    second = Constant(biased(LAMBDA_SECOND))
    rules: dict[str, Rule] = {"start": second} if schedule.first_epoch else {}
    gamma = 1 / 3 if paper else STEADY_GAMMA
    return Method("vcsg", rules | {"first": first, "second": second}, schedule, "geometric", gamma)


@register
def paper_sgd() -> Method:
    """The paper's SGD baseline (l.377): v = ½∇f_I(x), b = n^{1/4}, η_j = 1/(3L√n)/j. The ½ is a handicap."""
    return Method("paper-sgd", {"": Constant(Weights(0.5, 0, 0))}, PaperBaseline(decay=1.0), "fixed")


@register
def paper_svrg() -> Method:
    """The paper's SVRG baseline (l.377): (½, −½, ½), B = n, b = n^{1/4}, η = 1/(3L√n). The ½ is a handicap."""
    return Method("paper-svrg", {"": Constant(HALF)}, PaperBaseline(), "geometric")


@register
def spider(b: int | None = None) -> Method:
    """SPIDER/SARAH (Fang et al. 2018, Nguyen et al. 2017): the anchor moves with every step, y ← x and m ← v.

    v = ∇f_I(x) − ∇f_I(y) + m after a first step along ∇f; B = n, η = 1/(2L), ⌈n/b⌉ steps per anchor. Given the
    past v is biased; over the epoch its errors are a martingale.

    Args:
        b: the mini-batch size; None is √n.
    """
    schedule = PowerLaw(Given(), _optional_size("b", b), beta=0.5, alpha=0)
    rules = {"": Constant(SVRG_WEIGHTS)}
    return Method("spider", rules, schedule, "fixed", gamma=1 / 2, moves="step", anchor_step=True)


@register
def page(b: int | None = None) -> Method:
    """PAGE (Li et al. 2021): SPIDER that draws a full anchor with probability b/(n + b) at each step.

    Between two anchors lie then N steps, N geometric on {0, 1, …} with mean n/b; η = 1/(2L).

    Args:
        b: the mini-batch size; None is √n.
    """
    schedule = PowerLaw(Given(), _optional_size("b", b), beta=0.5, alpha=0)
    rules = {"": Constant(SVRG_WEIGHTS)}
    return Method("page", rules, schedule, "geometric", gamma=1 / 2, moves="step", anchor_step=True)


@register
def storm(a: float = 0.3, b: int | None = None) -> Method:
    """STORM (Cutkosky and Orabona 2019): v = ∇f_I(x) − (1−a)∇f_I(y) + (1−a)m, the anchor moves with every step.

    One full anchor at the start and never again; η = 1/(3L) and a constant a (its paper lowers both with time); an
    epoch is ⌈n/b⌉ steps.

    Args:
        a: the momentum parameter in (0, 1); a → 1 is SGD, a → 0 SPIDER.
        b: the mini-batch size; None is 64, or n where n is smaller.
    """
    keep = 1 - _fraction("a", a)
    schedule = PowerLaw(Given(), _optional_size("b", b), beta=1, b_max=64, alpha=0)
    weights = Constant(Weights(1, -keep, keep))
    return Method("storm", {"": weights}, schedule, "fixed", moves="step", drawn="once", anchor_step=True)


@register
def alpha_svrg(alpha: float = 0.75, epochs: int = 30, b: int | None = None) -> Method:
    """α-SVRG (Yin et al. 2023): (1, −α, α), α falling linearly to 0, from where on it is SGD without anchors.

    B = n, η = 1/(3L), ⌈n/b⌉ steps per anchor.

    Args:
        alpha: α in epoch 1.
        epochs: after how many epochs α is 0.
        b: the mini-batch size; None is 64, or n where n is smaller.
    """
    schedule = PowerLaw(Given(), _optional_size("b", b), beta=1, b_max=64, alpha=0)
    return Method("alpha-svrg", {"": Fading(_positive("alpha", alpha), _size("epochs", epochs))}, schedule, "fixed")


@register
def saga(b: int = 1, memory: int = 2**30) -> Method:
    """SAGA (Defazio et al. 2014): SVRG's v with the last gradient seen of each sample in place of ∇f_I(y).

    The table is filled by one pass at the start; a step then costs b gradients, not 2b. With b > 1 the samples are
    cut into fixed blocks of b, and the table holds a gradient for each. η = 1/(3L); an epoch is ⌈n/b⌉ steps.

    Args:
        b: the block size; the table holds ⌈n/b⌉ gradients.
        memory: the most bytes the table may take.
    """
    schedule = PowerLaw(Given(), _size("b", b), alpha=0)
    limit = _size("memory", memory)
    return Method("saga", {"": Constant(SVRG_WEIGHTS)}, schedule, "fixed", drawn="once", table=True, table_limit=limit)


@register
def snvrg() -> Method:
    """SNVRG (l.90; Zhou et al. 2018): nested anchors, one (y, m) per level, each renewed from the level above it.

    v = ∇f_I(x) − ∇f_I(y_{r−1}) + m_{r−1}, whereupon y_r ← x and m_r ← v. Loops and batches are those of its paper
    (`NestedLoops`), capped at n; η = 1/(6L).
    """
    rules = {"": Constant(SVRG_WEIGHTS)}
    return Method("snvrg", rules, NestedLoops(), "fixed", gamma=1 / 6, moves="nested", anchor_step=True)


@register
def momentum(beta: float = 0.9, b: int | None = None) -> Method:
    """SGD with momentum (Polyak 1964): v = (1−β)∇f_I(x) + βm, m ← v after every step; η = 1/(3L).

    The weights of torch's SGD with dampening = β; with `lr` given, its steps are those of torch.optim.SGD(lr·(1−β),
    momentum=β). No anchor is drawn, and an epoch is ⌈n/b⌉ steps.

    Args:
        beta: β in (0, 1).
        b: the mini-batch size; None is 64, or n where n is smaller.
    """
    return _remembering("momentum", momentum_weights(beta), b)


@register
def adam(beta: float = 0.9, beta2: float = 0.999, eps: float = 1e-8, b: int | None = None) -> Method:
    """Adam (Kingma and Ba 2015): momentum's v with the adaptive step, η = 0.001.

    Args:
        beta: β₁ in (0, 1).
        beta2: β₂ in [0, 1).
        eps: what is added to the root of the second moment.
        b: the mini-batch size; None is 64, or n where n is smaller.
    """
    return _remembering("adam", momentum_weights(beta), b, Adaptive(beta2=beta2, eps=eps))


@register
def muon(beta: float = 0.95, b: int | None = None) -> Method:
    """Muon (Jordan et al. 2024): momentum's v with the orthogonal step, η = 0.01, without Nesterov's correction.

    Args:
        beta: β in (0, 1).
        b: the mini-batch size; None is 64, or n where n is smaller.
    """
    return _remembering("muon", momentum_weights(beta), b, Orthogonal())


@register
def mars(beta: float = 0.95, scaling: float = 0.025, beta2: float = 0.99, b: int | None = None) -> Method:
    """MARS (Yuan et al. 2024): momentum over gradients that the point before corrects, with the adaptive step.

    v = (1−β)(∇f_I(x) + γβ/(1−β)·(∇f_I(x) − ∇f_I(y))) + βm, y and m those of the step before: the weights
    (1−β+γβ, −γβ, β). Two gradients per sample and step; η = 0.001. (Its paper clips the corrected gradient.)

    Args:
        beta: β in (0, 1).
        scaling: γ, how much of the correction is taken; 0 is Adam.
        beta2: β₂ in [0, 1).
        b: the mini-batch size; None is 64, or n where n is smaller.
    """
    beta, gamma = _fraction("beta", beta), _at_least_zero("scaling", scaling)
    weights = Weights(1 - beta + gamma * beta, -gamma * beta, beta)
    return _remembering("mars", weights, b, Adaptive(beta2=beta2))


@register
def auto(b: int | None = None) -> Method:
    """For networks, with nothing to tune: momentum, the orthogonal step, and the average of the points as output.

    v = 0.1·∇f_I(x) + 0.9·m, η = 0.01·√(b/256) and at least 0.005, and a decoupled weight decay of 0.1 where none is
    given. After a divergence it goes back and halves the step. `vcsg.fit` chooses b, and the adaptive step where the
    orthogonal one costs too much, by what they take on the device; it knows of layers that normalise, and has
    longer steps with them.

    Args:
        b: the mini-batch size; None is 256, or n where n is smaller.
    """
    size = 256 if b is None else _size("b", b)
    schedule = PowerLaw(Given(), None if b is None else size, beta=1, b_max=size, alpha=0)
    rules, step = {"": Constant(momentum_weights(0.9))}, Orthogonal(rate=0.01 * math.sqrt(max(size, 64) / 256))
    return Method("auto", rules, schedule, "fixed", moves="step", drawn="never", step=step, output="average", decay=0.1)


def momentum_weights(beta: float) -> Weights:
    """(1−β, 0, β)."""
    return Weights(1 - _fraction("beta", beta), 0, beta)


def _remembering(name: str, weights: Weights, b: int | None, step: StepRule | None = None) -> Method:
    """A method whose only memory is m, the v of the step before."""
    schedule = PowerLaw(Given(), _optional_size("b", b), beta=1, b_max=64, alpha=0)
    rules = {"": Constant(weights)}
    return Method(name, rules, schedule, "fixed", moves="step", drawn="never", step=step or Plain())


def _tell_of_K(eps: float | None, K: float) -> None:
    if eps is None and _positive("K", K) != ALG_4_K:
        logger.warning("K = %g has no effect without eps: give eps=, or leave K out", K)


def _size(name: str, size: int) -> int:
    if isinstance(size, bool) or not isinstance(size, Integral) or size < 1:
        raise ValueError(f"{name} = {size!r}: give a whole number, at least 1")
    return int(size)


def _optional_size(name: str, size: int | None) -> int | None:
    return None if size is None else _size(name, size)


def _anchor_floor(B_min: int) -> int:
    if _size("B_min", B_min) < 2:
        raise ValueError("B_min = 1: one sample has no variance to measure; give B_min of at least 2")
    return B_min


def _positive(name: str, value: float) -> float:
    if not 0 < value < math.inf:
        raise ValueError(f"{name} = {value!r}: give a finite number above 0")
    return value


def _at_least_zero(name: str, value: float) -> float:
    if not 0 <= value < math.inf:
        raise ValueError(f"{name} = {value!r}: give a finite number, at least 0")
    return value


def _fraction(name: str, value: float) -> float:
    if not 0 < value < 1:
        raise ValueError(f"{name} = {value!r}: give a number strictly between 0 and 1")
    return value
