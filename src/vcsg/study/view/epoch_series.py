"""The epochs of an anchored run as arrays, for the figures of its inner life."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from vcsg.study.records import Row, RunRecord
from vcsg.study.view.curves import POINTS, Array, thin
from vcsg.study.view.summary import groups


@dataclass(frozen=True)
class EpochSeries:
    """The epochs of a run, or a part of them where there are many: what was measured and what was chosen."""

    passes: Array
    B: Array
    b: Array
    variance: Array
    gradient: Array
    """The unbiased estimate of ‖∇f‖²: it can be negative."""
    bound: Array
    eps: Array | None
    regime: list[str]
    all_regimes: list[str]
    all_starts: Array
    """The regime of every epoch and where its anchor began: of all of them, however many are drawn."""
    end: float
    """The passes of the whole run."""
    total: int

    @property
    def regimes(self) -> list[str]:
        return list(dict.fromkeys(self.all_regimes))

    @property
    def share(self) -> str:
        """A remark for the title, where not all epochs are drawn."""
        return "" if len(self.passes) == self.total else f" ({len(self.passes)} of {self.total:,} drawn)"

    def spans(self, regime: str) -> list[tuple[float, float]]:
        """Where on the x axis the regime was in force: start and width of every stretch."""
        found: list[tuple[float, float]] = []
        ends = [*self.all_starts[1:], max(self.end, self.all_starts[-1])]
        for name, start, end in zip(self.all_regimes, self.all_starts, ends, strict=True):
            if name != regime:
                continue
            if found and math.isclose(sum(found[-1]), start):
                start = found.pop()[0]
            found.append((float(start), float(end - start)))
        return found


def anchored_runs(runs: list[RunRecord]) -> list[RunRecord]:
    """The first seed of every method whose epochs measured something at an anchor."""
    return [own[0] for own in (_anchored(own) for own in groups(runs).values()) if own]


def _anchored(runs: list[RunRecord]) -> list[RunRecord]:
    found = [run for run in runs if sum(row["anchor_size"] is not None for row in run.epochs) > 1]
    return sorted(found, key=lambda run: (run.status != "finished", run.config.seed))


def epochs_of(run: RunRecord, points: int = POINTS) -> EpochSeries:
    """The epochs of a run that had an anchor: at most `points` of them, evenly chosen."""
    rows = [row for row in run.epochs if row["anchor_size"] is not None]
    kept = [rows[int(k)] for k in thin(np.arange(len(rows), dtype=float), points)]
    has_eps = bool(kept) and all(row["eps"] is not None for row in kept)
    return EpochSeries(
        passes=_column(kept, "passes"),
        B=_column(kept, "B"),
        b=_column(kept, "b"),
        variance=_column(kept, "variance"),
        gradient=_column(kept, "gradient_norm2"),
        bound=_column(kept, "gradient_bound"),
        eps=_column(kept, "eps") if has_eps else None,
        regime=[row["regime"] for row in kept],
        all_regimes=[row["regime"] for row in rows],
        all_starts=_column(rows, "passes") - _column(rows, "anchor_size") / max(run.config.n, 1),
        end=max([row["passes"] for row in rows] + [run.final.get("passes") or 0.0]),
        total=len(rows),
    )


def _column(rows: list[Row], name: str) -> Array:
    return np.array([math.nan if row[name] is None else row[name] for row in rows], dtype=float)
