"""L can be measured once more after a pass, and a far smaller one is taken: that of the start may fit nothing later."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import vcsg

N = 400


def sharp_start(x: Tensor, targets: Tensor) -> Tensor:
    """A valley whose curvature is about 100 at x = 4 and 1 at its floor, 0."""
    return (0.5 * (x - targets) ** 2 + 0.5 * 100 * torch.relu(x - 1) ** 2).mean()


def flat_start(x: Tensor, targets: Tensor) -> Tensor:
    """The other way round: 1 at x = 4, and 2.5 below 1."""
    return (0.5 * (x - targets) ** 2 + 0.5 * 1.5 * torch.relu(1 - x) ** 2).mean()


def run(loss: Any, passes: float = 12, **options: Any) -> tuple[vcsg.FiniteSumOptimizer, list[vcsg.Record], int]:
    targets = 0.1 * torch.from_numpy(np.random.default_rng(0).normal(size=N))
    x, told, estimates = torch.nn.Parameter(torch.tensor(4.0, dtype=torch.float64)), [], 0
    optimizer = vcsg.VCSG([x], n=N, b_min=4, callback=told.append, **({"measure_again": True} | options))
    for (own,) in optimizer.batches((targets,), passes=passes):

        def closure(own: Tensor = own) -> Tensor:
            x.grad = None
            value = loss(x, own)
            value.backward()
            return value.detach()

        estimates += optimizer.phase.kind == "smoothness"
        optimizer.step(closure)
    return optimizer, told, estimates


def test_a_far_smaller_curvature_after_a_pass_is_taken_and_counted() -> None:
    optimizer, told, estimates = run(sharp_start)
    assert told[0].L == pytest.approx(101.0, rel=1e-3)
    assert optimizer.L == pytest.approx(1.0, rel=1e-3)
    assert {round(record.L) for record in told} == {101, 1}
    after = next(record for record in told if record.L < 2)
    before = told[told.index(after) - 1]
    assert after.ifo >= told[0].ifo + N  # a pass later
    assert after.anchor is not None
    assert after.ifo == before.ifo + 2 * before.length * before.b + after.anchor.B + estimates // 2 * 16 * 4
    assert after.step_size > 50 * told[0].step_size


def test_a_larger_curvature_is_not_taken() -> None:
    optimizer, told, estimates = run(flat_start)
    assert estimates == 10
    assert optimizer.L == told[0].L == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize("options", [{"measure_again": False}, {"L": 101.0}])
def test_the_default_and_a_given_L_measure_no_second_time(options: dict[str, Any]) -> None:
    optimizer, _, estimates = run(sharp_start, **options)
    assert optimizer.L == pytest.approx(101.0, rel=1e-3)
    assert estimates == (0 if "L" in options else 5)


def test_a_second_estimate_survives_a_saved_state() -> None:
    optimizer, _, _ = run(sharp_start, passes=2)
    saved = optimizer.state_dict()
    assert saved["vcsg"]["state"]["L_measured"] is not None
    again = vcsg.VCSG([torch.nn.Parameter(torch.tensor(4.0, dtype=torch.float64))], n=N, b_min=4, measure_again=True)
    again.load_state_dict(saved)
    assert again.state_dict()["vcsg"]["state"]["L_measured"] == saved["vcsg"]["state"]["L_measured"]
