"""What every method will do on a problem, before it is run: sizes, steps, costs, and which of the costs are proved."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vcsg.method import registry
from vcsg.method.definition import Method
from vcsg.theory.guarantees import guarantee
from vcsg.theory.method_plan import LISTED, MethodPlan
from vcsg.theory.planned_epochs import PlannedEpoch, copies, epochs, settled
from vcsg.theory.rates import TABLE_1
from vcsg.theory.setting import Setting

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class RunPlan:
    """What every method will do on a problem; `print` shows it as tables."""

    setting: Setting
    methods: tuple[MethodPlan, ...]

    def __getitem__(self, name: str) -> MethodPlan:
        for own in self.methods:
            if own.name == name:
                return own
        raise KeyError(f"{name!r} is not in the plan, which has {', '.join(own.name for own in self.methods)}")

    def __str__(self) -> str:
        return self.table()

    def table(self, width: int = 120) -> str:
        """The plan as tables of that many columns. Needs rich: pip install 'vcsg[study]'."""
        from vcsg.theory.plan_tables import as_text

        return as_text(self.setting, self.methods, width)

    def plot(self) -> Figure:
        """B_j over the epochs, as a figure of matplotlib. Needs matplotlib: pip install 'vcsg[study]'."""
        from vcsg.theory.plan_figure import batch_sizes

        return batch_sizes(self.setting, self.methods)


def plan(
    n: int,
    eps: float,
    L: float,
    variance: float,
    gap: float,
    methods: Sequence[str] | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> RunPlan:
    """What every method will do on a finite sum: B_j, b_j, η_j, E N_j, its cost to ε and its memory.

    Sizes and steps are those that a run takes, with S* held at `variance`. A method that has a target ε of its own
    (vcsg, scsg) gets this one.

    Args:
        n: the number of samples.
        eps: the target ε for ‖∇f‖².
        L: the smoothness constant of every ∇f_i.
        variance: S*, the mean of ‖∇f_i − ∇f‖² over the samples.
        gap: f(x_0) − inf f.
        methods: the names of the methods; None takes all that are registered.
        options: options of methods, by the name of the method.
    """
    setting = Setting(n, float(eps), float(L), float(variance), float(gap))
    given = dict(options or {})
    names = list(registry.methods() if methods is None else methods)
    if not names:
        raise ValueError("methods is empty: name at least one method, or leave it out for all of them")
    for name in given:
        registry.factory(name)
        if name not in names:
            raise ValueError(f"there are options of {name!r}, which is not among the methods: {', '.join(names)}")
    return RunPlan(setting, tuple(_plan(name, setting, given.get(name, {})) for name in names))


def _plan(name: str, setting: Setting, options: Mapping[str, Any]) -> MethodPlan:
    method = _make(name, setting, options)
    listed: list[PlannedEpoch] = []
    ended = False
    for planned in epochs(method, setting):
        listed.append(planned)
        ended = settled(method, setting, planned)
        if ended or planned.epoch == LISTED:
            break
    rate = TABLE_1.get(name)
    return MethodPlan(
        name=name,
        method=method,
        epochs=tuple(listed),
        settled=ended,
        guarantee=guarantee(method, setting),
        claimed=None if rate is None else rate.calls(setting),
        copies=copies(method, setting.n),
    )


def _make(name: str, setting: Setting, options: Mapping[str, Any]) -> Method:
    """The method with its options, and with the target where it has one: an option `eps` that is None by default."""
    parameters = inspect.signature(registry.factory(name)).parameters
    targeted = "eps" in parameters and parameters["eps"].default is None
    return registry.make(name, **({"eps": setting.eps} if targeted else {}) | dict(options))
