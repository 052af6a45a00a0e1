"""The text for a package index: README.md with links that work elsewhere. All the rest is in pyproject.toml."""

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
FENCE = re.compile(r"^(```.*?^```$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:)([^)\s]+)\)")


def description(repository: str | None) -> str:
    """README.md with every link led to the repository, or reduced to its words where that has no address yet."""

    def lead(match: re.Match[str]) -> str:
        picture, words, path = match.groups()
        if repository is None:
            return "" if picture else words
        place = "" if path.startswith("#") else f"/{'raw' if picture else 'blob'}/HEAD/"
        return f"{picture}[{words}]({repository.rstrip('/')}{place}{path})"

    parts = FENCE.split((ROOT / "README.md").read_text(encoding="utf-8"))
    parts[::2] = [LINK.sub(lead, prose) for prose in parts[::2]]
    return "".join(parts)


project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
setup(
    long_description=description(project.get("urls", {}).get("Repository")),
    long_description_content_type="text/markdown",
)
