"""`vcsg plan`: what every method will do on a problem, what it costs, and how much of that is proved."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vcsg.commands import completion, options
from vcsg.commands.ending import errors

if TYPE_CHECKING:
    from vcsg.study.settings import MethodSettings
    from vcsg.training.interrupt import Interrupt

FORMATS = (".png", ".pdf", ".svg")
"""The kinds of files that a figure is written to."""


def plan(
    eps: Annotated[float, typer.Option(help="The target ε for ‖∇f‖².")],
    n: Annotated[int | None, typer.Option("--n", help="The number of samples.")] = None,
    L: Annotated[float | None, typer.Option("--L", help="The smoothness constant of every sample's gradient.")] = None,
    variance: Annotated[
        float | None, typer.Option(help="S*, the mean of ‖∇f_i − ∇f‖² over the samples, at the points of a run.")
    ] = None,
    gap: Annotated[float | None, typer.Option(help="The objective at the start less its infimum.")] = None,
    workload: Annotated[
        str | None,
        typer.Option(
            metavar="DATASET/MODEL",
            help="Measures n, L, S* and the gap of this workload first; those that are given stay as given.",
            autocompletion=completion.workloads,
        ),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="The methods, separated by commas; the default is all of them.", autocompletion=completion.methods
        ),
    ] = None,
    set_: options.Set = None,
    config: options.Config = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="Draws the batch sizes of the epochs to this file.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The seed of the initial weights that are measured.")] = 0,
    device: options.Device = "cpu",
    threads: options.Threads = 1,
    data_dir: options.DataDir = None,
    import_: options.Import = None,
) -> None:
    """Plan a run: batch sizes, steps, memory and cost of every method.

    The cost to reach ε is given as far as it is proved, and beside it what the paper claims.
    """
    from vcsg import theory
    from vcsg.method import registry
    from vcsg.study import imports, settings
    from vcsg.study.view.tables import console
    from vcsg.theory.plan_tables import show
    from vcsg.training.interrupt import Interrupt

    interrupt = Interrupt()
    with errors(interrupt):
        imports.load(import_ or [])
        _check_file(out)
        names = list(registry.methods()) if methods is None else [word.strip() for word in methods.split(",")]
        chosen = _options(names, settings.parse(set_ or [], config))
        given: dict[str, Any] = {"n": n, "L": L, "variance": variance, "gap": gap}
        theory.Setting(**{key: 1 if value is None else value for key, value in given.items()}, eps=eps)
        if workload is None:
            _check_complete(given)
        else:
            given = _measure(workload, given, interrupt, data_dir, device, threads, seed)
        made = theory.plan(**given, eps=eps, methods=names, options=chosen)
        show(made.setting, made.methods, console())
        if out is not None:
            made.plot().savefig(out, dpi=160)
            print(f"Figure: {out}")


def _check_file(out: Path | None) -> None:
    if out is None:
        return
    if out.suffix not in FORMATS:
        raise ValueError(f"--out {out}: give a file that ends in {', '.join(FORMATS)}")
    if not out.parent.is_dir():
        raise ValueError(f"--out {out}: there is no folder {out.parent}; make it first")


def _options(names: list[str], given: MethodSettings) -> dict[str, dict[str, Any]]:
    """The options of every method, as they were set; those of a run alone (lr, L, output, …) have no place here."""
    from vcsg.method import registry
    from vcsg.names import suggestion

    known = {name: list(inspect.signature(registry.factory(name)).parameters) for name in names}
    for name, own in given.own.items():
        if name not in known:
            raise ValueError(f"an option is set for {name!r}, which is not planned: {suggestion(name, known)}")
        for key in own:
            if key not in known[name]:
                raise ValueError(f"{name} has no option {key!r} that a plan knows: {suggestion(key, known[name])}")
    everything = list(dict.fromkeys(key for keys in known.values() for key in keys))
    for key in given.common:
        if key not in everything:
            raise ValueError(f"no method has an option {key!r} that a plan knows: {suggestion(key, everything)}")
    return {
        name: {key: value for key, value in given.common.items() if key in keys} | given.own.get(name, {})
        for name, keys in known.items()
    }


def _check_complete(given: dict[str, Any]) -> None:
    missing = [name for name, value in given.items() if value is None]
    if missing:
        raise ValueError(
            f"--{missing[0]} is missing: give --n, --L, --variance and --gap, or --workload DATASET/MODEL, which "
            "measures them"
        )


def _measure(
    workload: str,
    given: dict[str, Any],
    interrupt: Interrupt,
    data_dir: str | None,
    device: str,
    threads: int,
    seed: int,
) -> dict[str, Any]:
    """The numbers that are given, and the measured ones for those that are not."""
    from vcsg.study.measuring import measure
    from vcsg.study.view.tables import console

    with interrupt:
        found = measure(workload, interrupt, data_dir=data_dir, device=device, threads=threads, seed=seed)
    if found is None:
        raise typer.Exit(interrupt.status)
    console().print(f"Measured on {workload}: {found}\n", highlight=False)
    return {key: getattr(found, key) if value is None else value for key, value in given.items()}
