"""The order of the rooms: an import only ever points further in, from room to room and inside each of them."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

ORDER: dict[str, list[str]] = {
    "": [
        "version", "files", "names", "silence", "planted", "method", "theory", "run", "gpu", "optimizer_options",
        "making_runs", "ordinary_loops", "calling_frameworks", "drawn_batches", "optimizer_state", "preset_face",
        "optimizer", "presets", "training", "linear", "workloads", "integrations", "study", "experiments", "extend",
        "commands", "cli", "__main__",
    ],
    "method": ["weights", "schedules", "step_rules", "definition", "whole_batches", "registry", "catalogue"],
    "theory": [
        "setting", "one_epoch", "anchor_noise", "exact_moments", "optimal_lambda", "rates", "resting_anchor",
        "moving_anchor", "planned_epochs", "guarantees", "statements", "lemma_checks", "bound_checks", "rate_checks",
        "method_plan", "plan_tables", "plan_figure", "planner",
    ],
    "run": [
        "vectors", "estimator", "preconditioning", "variance", "per_sample", "sampling", "randomness", "feeding",
        "certificate", "record", "watch", "handed_batches", "state", "holder", "smoothness", "power_iteration",
        "faults", "judging", "planning", "stepping", "handing_over", "reservoir",
        "course_options", "course", "clipping", "buffers", "point", "looking", "gradient_guard", "ranks", "closures",
    ],
    "gpu": ["triton_kernels", "graphs", "launching", "executor"],
    "training": [
        "stepper", "clock", "limits", "interrupt", "numerics", "task", "sources", "bad_samples", "batch_norm",
        "result", "progress", "evaluation", "quantities", "target_units", "choosing", "checkpoints", "saving", "engine",
        "loop", "session", "arguments", "cautions", "fitting",
    ],
    "linear": [
        "kernels", "problem", "solution", "curvature", "independent", "inner_steps", "duality", "row_sample", "solvers",
        "early_stopping", "inputs", "falling_scale", "blocks", "sampled_newton", "out_of_core",
        "model", "classifier", "regressor", "path", "cross_validation", "precompile",
    ],
    "linear.kernels": [
        "notice", "compiled", "emitted", "lanes", "losses", "penalties", "rows", "dense", "sparse", "classes", "loops",
        "lazy", "paired", "order", "hessian", "recursion", "newton_steps", "dual_steps", "column_steps", "gram_steps",
    ],
    "linear.solvers": [
        "newton", "row_space", "takeover", "quasi_newton", "conjugate", "incremental", "lbfgs", "moments",
        "residual_newton", "growing", "dual", "working_set", "interior_point", "choice", "automatic", "family",
    ],
    "workloads": [
        "dataset", "claims", "folders", "streams", "archives", "idx", "cache", "download", "source", "mnist",
        "mnist_mini", "cifar10", "tiny_imagenet", "libsvm", "datasets", "models", "problems", "workload",
    ],
    "study": [
        "targets", "records", "adapter", "baselines", "imports", "methods", "settings", "budgets", "protocols",
        "search", "plan", "running", "measuring", "compare", "reproduce", "view", "report", "outcome",
    ],
    "integrations": ["tracking", "with_lightning", "with_accelerate", "with_transformers", "with_skorch"],
    "commands": [
        "completion", "options", "ending", "showing", "run_command", "compare_command", "reproduce_command",
        "report_command", "list_command", "data_command", "plan_command", "complexity_command",
        "ablate_command", "payoff_command",
    ],
    "experiments": ["pieces", "conducting", "drawing", "sheet", "complexity", "ablation", "payoff"],
    "experiments.complexity": [
        "claimed_powers", "families", "contenders", "hitting", "cells", "observations", "exponents", "growth",
        "growth_table", "growth_figures", "growth_plots", "growth_page", "experiment",
    ],
    "experiments.ablation": [
        "variants", "convex", "network_methods", "network", "ablated_costs", "ablation_table", "ablation_figure",
        "ablation_page", "study_of_parts",
    ],
    "experiments.payoff": [
        "gradient_estimators", "ridge_logistic", "payoff_names", "payoff_study", "payoff_cells", "payoff_words",
        "payoff_table", "payoff_figure", "paying",
    ],
    "study.running": ["torchrun", "writing", "miniature", "runs", "estimates", "tasks", "forecast", "board", "workers"],
    "study.view": [
        "configurations", "summary", "words", "style", "curves", "label_places", "epoch_series", "sections", "tables",
        "plan_table", "findings", "verdicts", "markdown_page", "figures",
    ],
    "study.view.figures": ["axes", "bars", "anchors", "overview"],
    "study.report": [
        "markup", "layout", "table", "plots", "target_plot", "inside", "results", "searches", "headline", "page",
    ],
}  # fmt: skip
"""Of the library and of every folder in it, the modules and folders, innermost first."""
CORE = {"torch", "numpy", "vcsg"}
EXTRAS = {
    "theory": {"matplotlib", "rich"},
    "gpu": {"triton"},
    "training": {"matplotlib", "rich"},
    "linear": {"dask", "llvmlite", "matplotlib", "numba", "pyarrow", "scipy", "sklearn", "threadpoolctl"},
    "workloads": {"PIL", "pooch", "requests"},
    "study": {"matplotlib", "plotly", "rich", "safetensors"},
    "integrations": {"accelerate", "lightning", "skorch", "transformers"},
    "experiments": {"matplotlib", "plotly", "rich", "scipy"},
    "commands": {"typer"},
    "cli": {"typer"},
}
"""What else a room needs. `theory`, `gpu`, `training`, `workloads`, figures and report import theirs where they are
used."""
SOURCE = Path(__file__).parent.parent / "src" / "vcsg"


def modules() -> list[Path]:
    return [path for path in sorted(SOURCE.rglob("*.py")) if path != SOURCE / "__init__.py"]


def place(path: Path) -> tuple[str, ...]:
    """The parts of a module's name after `vcsg`; those of a package for its `__init__`."""
    return tuple(part for part in path.relative_to(SOURCE).with_suffix("").parts if part != "__init__")


def imports(path: Path) -> set[tuple[str, ...]]:
    """Every module that a file imports, anywhere in it, as the parts of its name; ("vcsg",) is the package itself."""
    found: set[tuple[str, ...]] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {tuple(alias.name.split(".")) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: write imports in full"
            package = tuple(str(node.module).split("."))
            submodules = [alias.name for alias in node.names if _is_module((*package, alias.name))]
            found |= {(*package, name) for name in submodules}
            if len(submodules) < len(node.names):
                found.add(package)
    return found


def _is_module(parts: tuple[str, ...]) -> bool:
    target = SOURCE.joinpath(*parts[1:])
    return parts[0] == "vcsg" and (target.is_dir() or target.with_suffix(".py").exists())


def ids(path: Path) -> str:
    return ".".join(place(path))


@pytest.mark.parametrize("path", modules(), ids=ids)
def test_imports_point_inwards(path: Path) -> None:
    own = place(path)
    for name in (name[1:] for name in imports(path) if name[0] == "vcsg"):
        shared = next((k for k, (a, b) in enumerate(zip(own, name, strict=False)) if a != b), min(len(own), len(name)))
        assert shared < len(name), f"{ids(path)} imports {'.'.join(('vcsg', *name))}, where it lives: name the module"
        if shared < len(own):  # else it is the face of its own folder
            order = ORDER[".".join(own[:shared])]
            assert order.index(name[shared]) < order.index(own[shared]), f"{ids(path)} may not import {'.'.join(name)}"


@pytest.mark.parametrize("path", modules(), ids=ids)
def test_the_core_needs_torch_and_numpy_only(path: Path) -> None:
    outside = {name[0] for name in imports(path)} - CORE - set(sys.stdlib_module_names)
    assert outside <= EXTRAS.get(place(path)[0], set())


def test_every_module_has_its_place() -> None:
    found: dict[str, set[str]] = {}
    for path in modules():
        own = place(path)
        for depth in range(len(own)):
            found.setdefault(".".join(own[:depth]), set()).add(own[depth])
    assert found == {folder: set(inside) for folder, inside in ORDER.items()}


def test_a_module_name_means_one_thing() -> None:
    names = [place(path)[-1] for path in modules()]
    assert sorted({name for name in names if names.count(name) > 1}) == []


def test_a_class_name_means_one_thing() -> None:
    names = [
        node.name
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    ]
    assert sorted({name for name in names if names.count(name) > 1}) == []
