"""The command `vcsg`: the names of its commands. What they do stands in `vcsg.commands`, one module for each."""

from __future__ import annotations

from typing import Annotated

import typer

from vcsg.commands import (
    ablate_command,
    compare_command,
    complexity_command,
    data_command,
    list_command,
    payoff_command,
    plan_command,
    report_command,
    reproduce_command,
    run_command,
)
from vcsg.version import __version__

app = typer.Typer(
    help="Variance-reduced optimisation of finite sums: VCSG and its family, run and compared.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
data_app = typer.Typer(help="Find and download data sets.", no_args_is_help=True, rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def version(show: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False) -> None:
    if show:
        print(f"vcsg {__version__}")
        raise typer.Exit


app.command("run")(run_command.run)
app.command("compare")(compare_command.compare)
app.command("reproduce")(reproduce_command.reproduce)
app.command("report")(report_command.report)
app.command("complexity")(complexity_command.complexity)
app.command("ablate")(ablate_command.ablate)
app.command("payoff")(payoff_command.payoff)
app.command("plan")(plan_command.plan)
app.command("list")(list_command.list_all)
app.add_typer(data_app, name="data")
data_app.command("fetch")(data_command.fetch)
data_app.command("where")(data_command.where)
