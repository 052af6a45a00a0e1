"""Pages of the site that are no files below docs/: README and its like, the examples, and the reference of modules.

Pages are written for a reader of the repository. Links are paths from file to file: one that leaves docs/ is led to the
page that shows its target here, and one that is named as a file has the title of the page as its name.
"""

from __future__ import annotations

import ast
import posixpath
import re
import tomllib
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
TOP = {
    "README.md": "overview.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "LICENSE": "license.md",
}
"""The pages that show files of the repository's top."""

REFERENCE = {
    "vcsg": "The optimizers, `fit` and what it returns. Every method has a class, and all of them take the options of"
    " [FiniteSumOptimizer][vcsg.FiniteSumOptimizer] as well.",
    "vcsg.linear": "Linear models: estimators with the interface of scikit-learn, and the solvers below them.",
    "vcsg.method": "Methods as data: weights, schedules, step rules, and the registry that knows methods by name.",
    "vcsg.workloads": "Data sets, models and analytic problems, by name.",
    "vcsg.theory": "Rates, bounds and plans of a run from the theory; [the page](../theory.md) has their proofs.",
    "vcsg.extend": "All that a file of your own needs to add methods, models, problems, data sets and baselines.",
    "vcsg.integrations": "vcsg inside other frameworks.",
    "vcsg.study": "Comparisons of methods from Python; [how they are made](../study.md#from-python).",
}
"""The modules of the reference, with what stands at the top of their pages."""
FIRST = ["fit", "Result", "Record", "FiniteSumOptimizer", "LinearClassifier", "LinearRegressor", "Method", "load"]
"""Names that come first on their page, in this order."""
STUDY = [
    "compare.make_study", "compare.conduct", "budgets.Budget", "settings.MethodSettings", "targets.Target",
    "records.load", "records.RunRecord", "records.RunConfig", "view.summary.summarise", "view.summary.Line",
]  # fmt: skip
"""What a program of your own needs of `vcsg.study`, which offers no names itself: its face is the command."""

FENCE = re.compile(r"^(```.*?^```$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")
FILE_LINK = re.compile(r"\[[\w/.-]+\.md\]\(([\w/.-]+\.md)\)")
SHALLOW = re.compile(r"^ {1,3}(?:[-*]|\d+\.) .*$", re.MULTILINE)
FOREIGN = "https://unpkg.com/iframe-worker/shim"
"""The one script that the theme would have fetched from elsewhere; site/worker.js takes its place."""
log = get_plugin_logger("pages")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Take the address of the repository from pyproject.toml, and complete the navigation."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    config.repo_url = project.get("urls", {}).get("Repository")
    sections: dict[str, list[Any]] = {name: items for section in config.nav or [] for name, items in section.items()}
    sections["Reference"] += [{module: f"api/{module}.md"} for module in documented()]
    sections["How to"] += new_pages(config.nav)
    return config


def new_pages(nav: Any) -> list[str]:
    """The pages below docs/ that the navigation does not name."""
    pages = sorted(path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md"))
    named = set(re.findall(r"[\w/.-]+\.md", repr(nav)))
    return [page for page in pages if page not in named]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made here, and those of all files that any page links to."""
    for file in files.documentation_pages():
        if file.abs_src_path is not None:
            warn_of_shallow_lists(file)
    made = {page: (ROOT / source).read_text() for source, page in TOP.items()}
    made["license.md"] = fenced("Licence", "text", made["license.md"])
    made["examples.md"] = list_of_examples()
    made |= {f"api/{module}.md": reference(module) for module in documented()}
    for source in linked_sources(files):
        language = "python" if source.endswith(".py") else "text"
        made[page_of(source)] = fenced(f"`{source}`", language, (ROOT / source).read_text())
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links to files of the repository to the pages that show them, by their titles."""
    home = origin(page.file.src_uri)
    parts = FENCE.split(markdown)
    for k, prose in enumerate(parts[::2]):
        named = FILE_LINK.sub(lambda m: f"[{title(target(home, m[1])) or m[1]}]({m[1]})", prose)
        parts[2 * k] = LINK.sub(lambda m: relink(m, home, page.file.src_uri), named)
    return "".join(parts)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Have the script that searches without a server come from the site itself."""
    return output.replace(FOREIGN, posixpath.relpath("site/worker.js", posixpath.dirname(page.file.dest_uri) or "."))


def on_post_template(output_content: str, template_name: str, config: MkDocsConfig) -> str:
    """Leave out the page for addresses that do not exist: it works on a server alone, at the top of its site."""
    return "" if template_name == "404.html" else output_content


def documented() -> list[str]:
    """The modules of the reference that exist."""
    return [module for module in REFERENCE if module_file(module).is_file()]


def module_file(module: str) -> Path:
    path = ROOT / "src" / Path(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def public(module: str) -> list[str]:
    """The names that a module offers."""
    if module == "vcsg.study":
        return STUDY
    for node in ast.parse(module_file(module).read_text()).body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            return list(ast.literal_eval(node.value))
    return []


def reference(module: str) -> str:
    """The page of a module: signature and docstring of every public name that has no page of its own."""
    names = [name for name in public(module) if f"{module}.{name}" not in REFERENCE]
    names.sort(key=lambda name: (FIRST.index(name) if name in FIRST else len(FIRST), name.lower()))
    entries = "\n\n".join(f"::: {module}.{name}" for name in names)
    return f"# `{module}`\n\n{REFERENCE[module]}\n\n{entries}\n"


def list_of_examples() -> str:
    lines = ["# Examples", "", "Short programs that run as they are, each on data that is in the package.", ""]
    for path in sorted((ROOT / "examples").rglob("*.py")):
        first = (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n\n")[0].replace("\n", " ")
        name = path.relative_to(ROOT / "examples").as_posix()
        lines.append(f"- [{name}](examples/{name}): {first}")
    return "\n".join(lines) + "\n"


def linked_sources(files: Files) -> list[str]:
    """The files outside docs/ that some page links to, and all examples; not those that have a page already."""
    texts = {f"docs/{f.src_uri}": f.content_string for f in files.documentation_pages()}
    texts |= {name: (ROOT / name).read_text() for name in TOP if name.endswith(".md")}
    found = {path.relative_to(ROOT).as_posix() for path in (ROOT / "examples").rglob("*.py")}
    for name, text in texts.items():
        for prose in FENCE.split(text)[::2]:
            found |= {target(name, match[2]) for match in LINK.finditer(prose)}
    outside = [t for t in found if not t.startswith(("docs/", "..")) and t not in TOP and (ROOT / t).is_file()]
    return sorted(outside)


def origin(uri: str) -> str:
    """The path in the repository of the file that a page shows."""
    shown = {page: source for source, page in TOP.items()}
    if uri in shown:
        return shown[uri]
    return uri if uri == "examples.md" else f"docs/{uri}"


def target(source: str, link: str) -> str:
    """Where a link of a file leads, as a path in the repository."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), link))


def page_of(path: str) -> str:
    """The page that shows a file of the repository."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return TOP.get(path) or f"source/{path}.md"


def relink(match: re.Match[str], home: str, page: str) -> str:
    start, link, anchor, end = match.groups()
    path = target(home, link)
    if re.match(r"[a-z]+:", link) or not (ROOT / path).is_file():
        return match[0]
    return f"{start}{posixpath.relpath(page_of(path), posixpath.dirname(page) or '.')}{anchor or ''}{end}"


def title(path: str) -> str:
    """The first heading of a page of the repository, if it is there."""
    file = ROOT / path
    found = re.search(r"^# (.+)$", file.read_text(), re.MULTILINE) if file.is_file() else None
    return found[1] if found else ""


def fenced(title: str, language: str, text: str) -> str:
    return f"# {title}\n\n````{language}\n{text.rstrip()}\n````\n"


def warn_of_shallow_lists(file: File) -> None:
    for prose in FENCE.split(file.content_string)[::2]:
        for line in SHALLOW.findall(prose):
            log.warning(f"{file.src_uri}: a list inside a list is indented by 4 spaces or it is drawn flat: {line!r}")
