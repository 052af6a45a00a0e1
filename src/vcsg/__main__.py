"""The command `vcsg`, also as `python -m vcsg`."""

from __future__ import annotations

import sys


def main() -> None:
    """Without the packages of the study there is no command, and the message names them."""
    try:
        from vcsg.cli import app

        app(prog_name="vcsg")
    except ModuleNotFoundError as error:  # a command imports what it needs when it runs
        if error.name is None or error.name.startswith("vcsg"):
            raise
        sys.exit(f"vcsg: the command needs {error.name.partition('.')[0]}: pip install 'vcsg[study]'")


if __name__ == "__main__":
    main()
