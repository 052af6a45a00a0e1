"""`auto` with nothing set beside tuned rivals, on small models of kinds that its defaults were not first chosen on.

    python -m benchmarks.kept_back [--tasks NAME …] [--seeds 3] [--settings FILE]
    python -m benchmarks.kept_back --alone b=256 lr=0.02 [--tasks NAME …] [--seeds 3]

One CPU thread. The rivals are torch's SGD with momentum 0.9 and AdamW, without a schedule. Each is tuned for the task
by seed 0, over steps a factor 3 apart (and on beyond the grid where its edge is the best) and b = 64 and 256. For the
error at the end the setting with the lowest one is taken, for the time the setting that first came to the target. The
target is what the best rival has at its end, and a twentieth more. A cell has medians over the seeds: CPU seconds and
passes to the target, and the error (or loss) at the end, with the lowest and the highest. With `--settings` what the
search has found is kept in a file, and read from there.

With `--alone` there are no rivals, and `auto` is given the options that follow, such as the mini-batch that it has on a
GPU: its errors after an eighth, a quarter, half and all of the budget, medians over the seeds.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from benchmarks.kept_back_tasks import TASKS, Task
from torch import nn

import vcsg

Rows = list[tuple[float, float, float]]
"""(CPU seconds, passes, error on the test samples) of every evaluation of a run."""

EVALUATIONS = 16
STEPS = {"SGD, momentum": [0.003, 0.01, 0.03, 0.1, 0.3], "AdamW": [0.0003, 0.001, 0.003, 0.01, 0.03]}


def made(task: Task, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return task.model()


def run_auto(task: Task, seed: int, **given: Any) -> tuple[Rows, str]:
    with patch("vcsg.training.clock.time", SimpleNamespace(monotonic=time.process_time)):
        found = vcsg.fit(
            made(task, seed), task.loss, task.train, passes=task.passes, every=task.passes / EVALUATIONS, seed=seed,
            test=task.test, metrics={"measured": task.error}, test_batch_size=len(task.test[0]), progress=False,
            **given,
        )  # fmt: skip
    return [(row["seconds"], row["passes"], row["measured"]) for row in found.history[1:]], found.chosen


def run_rival(task: Task, name: str, lr: float, b: int, seed: int) -> Rows:
    """A plain loop of torch's, without what `fit` does besides; its errors end where they are not finite."""
    model, (x, y) = made(task, seed), task.train
    moving = [p for p in model.parameters() if p.requires_grad]
    optimizer: torch.optim.Optimizer = (
        torch.optim.AdamW(moving, lr) if name == "AdamW" else torch.optim.SGD(moving, lr, momentum=0.9)
    )
    rows: Rows = []
    seen, seconds, due, begun = 0, 0.0, task.passes / EVALUATIONS, time.process_time()
    while seen < task.passes * len(x):
        for batch in torch.randperm(len(x)).split(b):
            if len(batch) == 1:
                continue  # BatchNorm has no variance of it
            optimizer.zero_grad()
            task.loss(model(x[batch]), y[batch]).backward()
            optimizer.step()
            seen += len(batch)
            if seen / len(x) >= due - 1e-9 or seen >= task.passes * len(x):
                seconds += time.process_time() - begun
                rows.append((seconds, seen / len(x), evaluated(model, task)))
                if not math.isfinite(rows[-1][2]):
                    return rows
                due, begun = seen / len(x) + task.passes / EVALUATIONS, time.process_time()
    return rows


def evaluated(model: nn.Module, task: Task) -> float:
    model.eval()
    with torch.no_grad():
        found = float(task.error(model(task.test[0]), task.test[1]))
    model.train()
    return found


def final(rows: Rows) -> float:
    return rows[-1][2] if math.isfinite(rows[-1][2]) else math.inf


def first(rows: Rows, target: float) -> tuple[float, float]:
    """CPU seconds and passes to the target; infinite where it was not reached."""
    return next(((s, p) for s, p, error in rows if error <= target), (math.inf, math.inf))


class Tuned(NamedTuple):
    """The target of a task, and by rival its settings (step, b) with the lowest error and with the shortest time."""

    target: float
    settings: dict[str, list[tuple[float, int]]]


def tune(task: Task, seeds: int) -> Tuned:
    tried = {name: searched(task, name) for name in STEPS}
    best = {name: min(runs, key=lambda k: final(runs[k])) for name, runs in tried.items()}
    others = {name: [final(run_rival(task, name, *best[name], seed)) for seed in range(1, seeds)] for name in STEPS}
    target = 1.05 * min(statistics.median([final(tried[name][best[name]]), *others[name]]) for name in STEPS)
    fastest = {name: min(runs, key=lambda k: (*first(runs[k], target), final(runs[k]))) for name, runs in tried.items()}
    return Tuned(target, {name: [best[name], fastest[name]] for name in STEPS})


def searched(task: Task, name: str) -> dict[tuple[float, int], Rows]:
    """The runs of seed 0 of every setting; beyond the edge of the grid as long as the edge is the best."""
    runs: dict[tuple[float, int], Rows] = {}
    for b in (64, 256):
        steps = list(STEPS[name])
        for lr in steps:
            runs[lr, b] = run_rival(task, name, lr, b, 0)
        while len(steps) < 12:
            best = min(steps, key=lambda lr: final(runs[lr, b]))
            if min(steps) < best < max(steps):
                break
            further = best * 10**0.5 if best == max(steps) else best / 10**0.5
            steps.append(further)
            runs[further, b] = run_rival(task, name, further, b, 0)
    return runs


def measured(task: Task, tuned: Tuned, seeds: int) -> dict[str, tuple[list[Rows], list[Rows], str]]:
    """By method the runs for the end and for the time, taken in turns, and how it was set."""
    found: dict[str, tuple[list[Rows], list[Rows], str]] = {"auto": ([], [], "")}
    found |= {
        name: ([], [], "; ".join(f"η = {lr:.2g}, b = {b}" for lr, b in settings))
        for name, settings in tuned.settings.items()
    }
    for seed in range(seeds):
        rows, chosen = run_auto(task, seed)
        found["auto"] = [*found["auto"][0], rows], [*found["auto"][1], rows], chosen
        for name, (best, fastest) in tuned.settings.items():
            ends, times, _ = found[name]
            ends.append(run_rival(task, name, *best, seed))
            times.append(ends[-1] if fastest == best else run_rival(task, name, *fastest, seed))
    return found


def shown(ends: list[Rows], times: list[Rows], target: float) -> str:
    finals = sorted(map(final, ends))
    seconds, passes = (statistics.median(first(rows, target)[k] for rows in times) for k in (0, 1))
    reached = f"{seconds:6.2f} s {passes:5.1f} passes" if passes < math.inf else f"{'not reached':>21}"
    return f"{reached}  {statistics.median(finals):9.4g} [{finals[0]:.4g}, {finals[-1]:.4g}]"


def alone(task: Task, seeds: int, given: dict[str, Any]) -> str:
    """The errors of `auto` with these options on the way and at the end."""
    runs, chosen = zip(*(run_auto(task, seed, **given) for seed in range(seeds)), strict=True)
    places = [len(runs[0]) // part - 1 for part in (8, 4, 2, 1)]
    errors = (statistics.median(rows[place][2] for rows in runs) for place in places)
    return "  ".join(f"{error:9.4g}" for error in errors) + f"   {chosen[0]}"


def option(text: str) -> tuple[str, float]:
    """An option of `auto`, written NAME=VALUE."""
    name, _, value = text.partition("=")
    return name, int(value) if value.isdigit() else float(value)


def main() -> None:
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=[""], help="parts of names of tasks")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--settings", type=Path, help="a file that keeps the targets and the settings of the rivals")
    parser.add_argument("--alone", nargs="*", type=option, help="no rivals; options of auto, as NAME=VALUE")
    given = parser.parse_args()
    kept = json.loads(given.settings.read_text()) if given.settings and given.settings.exists() else {}
    for name, make in TASKS.items():
        if not any(part in name for part in given.tasks):
            continue
        task = make()
        if given.alone is not None:
            print(f"{name}: {alone(task, given.seeds, dict(given.alone))}", flush=True)
            continue
        if name not in kept:
            kept[name] = tune(task, given.seeds)
            if given.settings:
                given.settings.write_text(json.dumps(kept))
        tuned = Tuned(*kept[name])
        print(f"{name}, n = {len(task.train[0])}, {task.passes} passes, to {tuned.target:.4g}", flush=True)
        for method, (ends, times, how) in measured(task, tuned, given.seeds).items():
            print(f"    {method:14}{shown(ends, times, tuned.target)}   {how}", flush=True)


if __name__ == "__main__":
    main()
