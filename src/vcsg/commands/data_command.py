"""`vcsg data`: where data sets are, and their downloads."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from vcsg.commands import completion, options
from vcsg.commands.ending import errors


def fetch(
    name: Annotated[str, typer.Argument(help="The data set to download.", autocompletion=completion.data_sets)],
    data_dir: options.DataDir = None,
    import_: options.Import = None,
) -> None:
    """Download a data set, unless its files are here already."""
    from vcsg import workloads
    from vcsg.study import imports

    with errors():
        imports.load(import_ or [])
        for path in workloads.fetch(name, data_dir):
            print(path)


def where(data_dir: options.DataDir = None, import_: options.Import = None) -> None:
    """Say where data sets are looked for, which were found, and how many training samples are there."""
    from vcsg import workloads
    from vcsg.study import imports
    from vcsg.workloads.folders import data_folders

    with errors():
        imports.load(import_ or [])
    print("Data sets are looked for in:", ", ".join(map(str, data_folders(data_dir))))
    folder = "" if data_dir is None else f" --data-dir {shlex.quote(data_dir)}"
    with errors():
        for name, source in workloads.data_sets().items():
            files = workloads.where(name, data_dir)
            if files is None:
                remedy = f"vcsg data fetch {name}{folder}" if source.downloads else "copy its files there"
                print(f"{name:<14} {'–':>7} samples  not found: {remedy}")
                continue
            there = workloads.samples_on_disk(name, data_dir)
            part = "" if there == source.n else f", a part of {source.n:,}"
            print(f"{name:<14} {there:>7,} samples  {files[0].parent if files else 'in the package'}{part}")
