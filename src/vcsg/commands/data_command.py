"""`vcsg data`: where data sets are, and their downloads."""

from __future__ import annotations

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
    """Say where data sets are looked for, and which were found."""
    from vcsg import workloads
    from vcsg.study import imports
    from vcsg.workloads.folders import data_folders

    with errors():
        imports.load(import_ or [])
    print("Data sets are looked for in:", ", ".join(map(str, data_folders(data_dir))))
    for name, source in workloads.data_sets().items():
        files = workloads.where(name, data_dir)
        place = "in the package" if files == [] else files[0].parent if files else f"not found: vcsg data fetch {name}"
        print(f"{name:<14} n = {source.n:>7,}  {place}")
