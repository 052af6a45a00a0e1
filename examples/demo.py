"""VCSG, SCSG, SVRG and SGD on real images: LeNet-300-100 on mnist-mini, a minute or so on one core.

Every method starts at the same weights, reads the same data and may spend the same number of passes: one pass is n
gradients of single samples, wherever they are spent (anchors, inner steps, the estimate of L). Unless its label says
otherwise a method has the defaults of the library: nothing was tuned for it. Two entries had a search, the rest none:
SVRG with the best η of 0.05, 0.1 and 0.2, and torch's SGD with momentum 0.9 and the best η of 0.01, 0.02, 0.05 and 0.1,
each by its training loss after 20 passes with seed 0. b = 1, the default of SCSG and SVRG, would take minutes, so
theirs is 16 and 64.

Prints a table and writes a plot. Test errors are evaluated outside clock and count. Ctrl-C keeps what is done so far.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Table
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import vcsg
from vcsg.workloads import DataSet, lenet_300_100, mnist_mini

EVALUATIONS = 40
"""Points of each curve."""
LINES = 4
"""Progress lines per method where there is no terminal to draw on."""
WIDTH = 108
"""Columns that the whole table needs; a narrower terminal gets fewer of them."""
MOMENTUM = 0.9

Steps = Iterator[float]
"""Each item is one step done: the passes so far."""


class Point(NamedTuple):
    """One evaluation on the way."""

    passes: float
    seconds: float
    error: float


@dataclass
class Outcome:
    """What a method did."""

    label: str
    weights: list[str] = field(default_factory=list)
    anchored: bool = False
    settings: Callable[[], tuple[str, str, str]] = lambda: ("–", "–", "–")
    """B, b and η as last used."""
    records: list[vcsg.Record] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    loss: float = math.nan
    stopped: bool = False

    @property
    def error(self) -> float:
        return self.points[-1].error


Start = Callable[[nn.Module, DataSet, float, int, Outcome], Steps]
"""(model, data, passes, seed, outcome) → the steps; notes in the outcome what the table shows."""


class Contender(NamedTuple):
    """A method with its settings."""

    label: str
    colour: str
    dashes: str
    start: Start


def family(preset: Callable[..., vcsg.FiniteSumOptimizer], **options: float) -> Start:
    """A method of the library."""

    def start(model: nn.Module, data: DataSet, passes: float, seed: int, outcome: Outcome) -> Steps:
        n = len(data.train[0])
        optimizer = preset(model.parameters(), n=n, seed=seed, callback=outcome.records.append, **options)
        outcome.weights = [f"({', '.join(f'{w:.3g}' for w in c)})".replace("-", "−") for c in optimizer.method.choices]
        outcome.anchored = optimizer.method.anchored(1)
        outcome.settings = partial(last_settings, optimizer)
        return steps(optimizer, model, data, passes)

    return start


def steps(optimizer: vcsg.FiniteSumOptimizer, model: nn.Module, data: DataSet, passes: float) -> Steps:
    """The loop that a user of the library writes."""
    for images, labels in optimizer.batches(data.train, passes=passes):
        optimizer.step(partial(backward, optimizer, model, images, labels))
        yield optimizer.passes


def last_settings(optimizer: vcsg.FiniteSumOptimizer) -> tuple[str, str, str]:
    record = optimizer.record
    if record is None:
        return "–", "–", "–"
    return f"{record.B:,}" if record.anchor else "–", str(record.b), f"{record.step_size:.2g}"


def torch_momentum(lr: float, b: int) -> Start:
    """SGD with momentum as torch ships it, reshuffled every pass: the yardstick from outside the family."""

    def start(model: nn.Module, data: DataSet, passes: float, seed: int, outcome: Outcome) -> Steps:
        outcome.weights = ["(1, 0, 0) + momentum"]
        outcome.settings = lambda: ("–", str(b), f"{lr:.2g}")
        return momentum_steps(model, data, passes, seed, lr, b)

    return start


def momentum_steps(model: nn.Module, data: DataSet, passes: float, seed: int, lr: float, b: int) -> Steps:
    images, labels = data.train
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=MOMENTUM)
    order, calls, n = torch.Generator().manual_seed(seed), 0, len(images)
    while True:
        for batch in torch.randperm(n, generator=order).split(b):
            if calls >= passes * n:
                return
            backward(optimizer, model, images[batch], labels[batch])
            optimizer.step()
            calls += len(batch)
            yield calls / n


def backward(optimizer: torch.optim.Optimizer, model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """The closure: the mean loss of the batch, and its gradient in the parameters."""
    optimizer.zero_grad()
    loss = cross_entropy(model(images), labels)
    loss.backward()
    return loss


# η = 0.1 for SVRG, where lr alone is what multiplies (b/n)^{2/3}.
SVRG_LR = 0.1 * (10_000 / 64) ** (2 / 3)
# Okabe and Ito's colours, told apart by every kind of colour vision. Dashed: tuned. Dotted: no anchor.
CONTENDERS = {
    "vcsg": Contender("VCSG", "#D55E00", "-", family(vcsg.VCSG)),
    "vcsg-16": Contender("VCSG, b ≥ 16", "#E69F00", "-", family(vcsg.VCSG, b_min=16)),
    "scsg": Contender("SCSG, b = 16", "#0072B2", "-", family(vcsg.SCSG, b=16)),
    "svrg": Contender("SVRG, b = 64", "#56B4E9", "-", family(vcsg.SVRG, b=64)),
    "svrg-tuned": Contender("SVRG, η = 0.1", "#56B4E9", "--", family(vcsg.SVRG, b=64, lr=SVRG_LR)),
    "paper-svrg": Contender("the paper's SVRG", "#CC79A7", "-", family(vcsg.PaperSVRG)),
    "sgd": Contender("SGD", "#009E73", ":", family(vcsg.SGD)),
    "momentum": Contender("SGD, momentum 0.9", "#000000", ":", torch_momentum(lr=0.05, b=64)),
}


class Reporter:
    """Progress: bars on a terminal, a few plain lines elsewhere."""

    def __init__(self, console: Console, passes: float) -> None:
        columns = TextColumn("{task.description:<18}"), BarColumn(bar_width=12), TextColumn("{task.fields[text]}")
        self._progress = Progress(*columns, console=console, disable=not console.is_terminal)
        self._console, self._passes, self._task, self._line = console, passes, TaskID(0), 1

    def __enter__(self) -> Reporter:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def begin(self, outcome: Outcome) -> None:
        self._task, self._line = self._progress.add_task(outcome.label, total=self._passes, text=""), 1

    def tell(self, outcome: Outcome) -> None:
        passes, seconds, error = outcome.points[-1]
        text = f"{passes:5.1f} passes  {seconds:5.1f} s  test error {error:6.2%}"
        self._progress.update(self._task, completed=passes, text=text)
        if not self._console.is_terminal and passes >= self._line * self._passes / LINES:
            self._line = math.floor(passes * LINES / self._passes) + 1
            self._console.print(f"{outcome.label:<18} {text}", highlight=False)


def run(contender: Contender, data: DataSet, passes: float, seed: int, outcome: Outcome, reporter: Reporter) -> None:
    """Train from the common start; the clock stands still while the test error is evaluated.

    It counts processor time: with one thread that is the time on the wall, less what other programs took.
    """
    torch.manual_seed(seed)
    model = lenet_300_100(classes=data.classes)
    done, clock = 0.0, 0.0

    def evaluate() -> None:
        outcome.points.append(Point(done, clock, test_error(model, data)))
        reporter.tell(outcome)

    reporter.begin(outcome)
    evaluate()
    begun = time.process_time()
    try:
        for done in contender.start(model, data, passes, seed, outcome):
            if done >= outcome.points[-1].passes + passes / EVALUATIONS:
                clock += time.process_time() - begun
                evaluate()
                begun = time.process_time()
    finally:
        if done > outcome.points[-1].passes:
            clock += time.process_time() - begun
            evaluate()
        outcome.loss = training_loss(model, data)


@torch.no_grad()
def test_error(model: nn.Module, data: DataSet) -> float:
    images, labels = data.test
    return float((model(images).argmax(1) != labels).float().mean())


@torch.no_grad()
def training_loss(model: nn.Module, data: DataSet) -> float:
    images, labels = data.train
    return float(cross_entropy(model(images), labels))


def warm_up(data: DataSet) -> None:
    """torch loads parts of itself at the first steps; that is not the first method's time."""
    for key in ("sgd", "momentum"):
        for _ in islice(CONTENDERS[key].start(lenet_300_100(), data, 1.0, 0, Outcome(key)), 10):
            pass


def compare(
    keys: list[str], data: DataSet, passes: float, seed: int, console: Console
) -> tuple[dict[str, Outcome], bool]:
    """The outcomes by key, and whether all of them are complete."""
    outcomes: dict[str, Outcome] = {}
    with Reporter(console, passes) as reporter:
        for key in keys:
            outcomes[key] = outcome = Outcome(CONTENDERS[key].label)
            try:
                run(CONTENDERS[key], data, passes, seed, outcome, reporter)
            except KeyboardInterrupt:
                outcome.label, outcome.stopped = f"{outcome.label} (stopped)", True
                return {key: o for key, o in outcomes.items() if o.points}, False
    return outcomes, True


def table(outcomes: list[Outcome], title: str, wide: bool) -> Table:
    """Best test error first; without the settings if it is not to be `wide`."""
    best = min(o.error for o in outcomes)
    made = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), title_justify="left", title_style="bold")
    made.add_column("method", no_wrap=True)
    if wide:
        made.caption = "B, b, η: batch, mini-batch and step size of the last epoch"
        made.add_column("weights (a, b, c)", no_wrap=True)
    for heading in ("B", "b", "η") * wide + ("passes", "seconds", "train\nloss", "test\nerror", "ratio\nto best"):
        made.add_column(heading, justify="right", no_wrap=True)
    for o in sorted(outcomes, key=lambda o: o.error):
        passes, seconds, error = o.points[-1]
        settings = ("\n".join(o.weights), *o.settings()) * wide
        ratio = error / best if best else math.nan
        made.add_row(
            o.label, *settings, f"{passes:.1f}", f"{seconds:.1f}", f"{o.loss:.2g}", f"{error:.2%}", f"{ratio:.2f}"
        )
    return made


def verdict(outcomes: dict[str, Outcome], images: int) -> list[str]:
    """What came out, in sentences made from the numbers."""
    outcomes = {key: o for key, o in outcomes.items() if not o.stopped}
    if not outcomes:
        return ["Stopped before the first method was done: there is nothing to compare."]
    ranked = sorted(outcomes.values(), key=lambda o: o.error)
    best = ranked[0]
    noise = math.sqrt(best.error * (1 - best.error) / images)
    said = [f"Lowest test error: {best.label}, {best.error:.2%} (standard error over {images:,} images: {noise:.2%})."]
    rival = next((o for o in ranked if o.anchored != best.anchored), None)
    if rival:
        kind = "with" if rival.anchored else "without"
        close = rival.error - best.error < 2 * math.sqrt(2) * noise
        ending = ": too close to call" if close else ": variance reduction paid here"
        if not close and rival.anchored:
            ending = ": variance reduction did not pay here"
        said.append(f"The best method {kind} an anchor was {rival.label}, {rival.error:.2%}{ending}.")
    return said + beside_vcsg(outcomes)


def beside_vcsg(outcomes: dict[str, Outcome]) -> list[str]:
    """VCSG beside the other methods with an anchor, all at the step size of their own theory."""
    others = [outcomes[key] for key in ("scsg", "svrg", "paper-svrg") if key in outcomes]
    said = []
    if "vcsg" in outcomes:
        own = outcomes["vcsg"]
        for words, wins in (("is ahead of", True), ("is not ahead of", False)):
            names = [f"{o.label} ({o.error:.2%})" for o in others if (own.error < o.error) == wins]
            if names:
                said.append(
                    f"At the step sizes of their theory, {own.label} ({own.error:.2%}) {words} {'; '.join(names)}."
                )
    return said


def plot(outcomes: dict[str, Outcome], title: str, path: Path) -> None:
    """Test error against passes and seconds; below, where VCSG ran, what its records tell."""
    inside = next((outcomes[key] for key in ("vcsg", "vcsg-16") if key in outcomes and outcomes[key].records), None)
    rows = 2 if inside else 1
    figure = plt.figure(figsize=(10, 4.1 * rows), layout="constrained")
    parts = figure.subfigures(rows, 1, squeeze=False, hspace=0.04)[:, 0]
    plot_errors(parts[0], outcomes, title)
    if inside:
        plot_records(parts[1], inside)
    figure.savefig(path, dpi=100)
    plt.close(figure)


def plot_errors(figure: SubFigure, outcomes: dict[str, Outcome], title: str) -> None:
    figure.suptitle(title, fontweight="bold")
    left, right = figure.subplots(1, 2, sharey=True)
    for key, outcome in sorted(outcomes.items(), key=lambda item: -item[1].error):
        look = CONTENDERS[key]
        passes, seconds, errors = zip(*outcome.points, strict=True)
        for axis, across in ((left, passes), (right, seconds)):
            percent = [100 * e for e in errors]
            axis.plot(across, percent, look.dashes, color=look.colour, label=outcome.label, linewidth=1.8)
    logarithmic(left, "passes (n gradients each)", "test error (%)")
    logarithmic(right, "seconds (of one core)", "")
    left.set_xlim(0, max(o.points[-1].passes for o in outcomes.values()))
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)


def plot_records(figure: SubFigure, outcome: Outcome) -> None:
    """B_j and b_j; S*, ‖∇f‖² and the ε that the batch sizes follow."""
    figure.suptitle(f"inside {outcome.label}: one dot per epoch", fontweight="bold")
    left, right = figure.subplots(1, 2)
    anchors = [(r.passes, r.anchor) for r in outcome.records if r.anchor]
    passes = [p for p, _ in anchors]
    dots(left, passes, [r.B for r in outcome.records], "#D55E00", "batch size B")
    dots(left, passes, [r.b for r in outcome.records], "#0072B2", "mini-batch size b")
    dots(right, passes, [a.variance for _, a in anchors], "#E69F00", "variance S*")
    dots(right, passes, [a.gradient_bound() for _, a in anchors], "#56B4E9", "‖∇f‖², upper bound (95 %)")
    # The unbiased estimate can fall below 0, where a logarithm has no place for it.
    estimates = [a.gradient_norm2 if a.gradient_norm2 > 0 else math.nan for _, a in anchors]
    dots(right, passes, estimates, "#009E73", "‖∇f‖², estimate")
    eps = outcome.records[-1].eps
    if eps is not None:
        right.axhline(eps, color="black", linestyle="--", linewidth=1, label=f"ε = {eps:.2g}")
    logarithmic(left, "passes", "samples")
    logarithmic(right, "passes", "squared norm")
    for axis in (left, right):
        axis.set_xlim(0, outcome.points[-1].passes)
        axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, frameon=False)


def dots(axis: Axes, x: list[float], y: list[float] | list[int], colour: str, label: str) -> None:
    axis.plot(x, y, "o", color=colour, label=label, markersize=2.5)


def logarithmic(axis: Axes, across: str, upwards: str) -> None:
    """A logarithmic y with plain numbers at 1, 2 and 5, or at powers of ten where it spans several."""
    axis.set(xlabel=across, ylabel=upwards, xlim=(0, None), yscale="log")
    low, high = axis.get_ylim()
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 100 else (1,)))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_minor_formatter(NullFormatter())
    axis.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    axis.grid(alpha=0.4)


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compares VCSG with its relatives: LeNet-300-100 on mnist-mini.")
    parser.add_argument("--passes", type=positive, default=20.0, help="gradients per method in units of n (default 20)")
    parser.add_argument("--seed", type=seed, default=0, help="of the initial weights and of all sampling (default 0)")
    parser.add_argument(
        "--out", type=Path, default=Path("demo-output"), help="where the plot goes (default %(default)s)"
    )
    known = f"which methods to run, all by default: {', '.join(CONTENDERS)}"
    parser.add_argument("--methods", nargs="+", choices=CONTENDERS, default=list(CONTENDERS), metavar="M", help=known)
    return parser.parse_args(argv)


def seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text} is not a whole number, at least 0")
    return int(text)


def positive(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a finite number above 0")
    return value


def main(argv: list[str] | None = None) -> int:
    """Exit status 0, or 130 after Ctrl-C."""
    options = arguments(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    # These tensors are small: more threads save nothing, and cost much where the cores have other work.
    torch.set_num_threads(1)
    plt.switch_backend("agg")
    console = Console()
    console = console if console.is_terminal else Console(width=WIDTH)
    data = mnist_mini()
    title = f"LeNet-300-100 on mnist-mini (n = {len(data.train[0]):,}), seed {options.seed}"
    console.print(f"{title}, {options.passes:g} passes per method", highlight=False)
    warm_up(data)
    outcomes, complete = compare(list(dict.fromkeys(options.methods)), data, options.passes, options.seed, console)
    if outcomes:
        console.print(table(list(outcomes.values()), title, wide=console.width >= WIDTH))
        plot(outcomes, title, options.out / "demo.png")
        for sentence in verdict(outcomes, len(data.test[0])):
            console.print(sentence, highlight=False)
        console.print(f"Plot: {options.out / 'demo.png'}", highlight=False, soft_wrap=True)
    return 0 if complete else 130


if __name__ == "__main__":
    sys.exit(main())
