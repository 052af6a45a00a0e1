"""The numbers of a study against cases worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from records_sample import config

from vcsg.study.records import Row, RunRecord
from vcsg.study.targets import Target
from vcsg.study.view.summary import Line, Spread, claim_rows, summarise

TARGET = Target("test_error", 0.1)
CLAIM = {"metric": "test_error", "target": 0.1, "speedup": {"scsg": 2.0, "svrg": 3.0, "sgd": 4.0}, "seconds": 16.0}


def run(method: str, errors: list[float | None], seconds: float = 1.0, status: str = "finished", **fields: object):
    """A run with an evaluation per pass of n = 100 samples, each pass of so many seconds."""
    made = config("w", method, method.upper(), **fields)
    record = RunRecord(Path("r"), made, {}, "2026", status)
    for place, error in enumerate(errors):
        row: Row = {"ifo": 100 * place, "passes": float(place), "seconds": seconds * place, "train_loss": 2.0 - place}
        record.evaluations.append(row | {"test_error": error})
    return record


def line(runs: list[RunRecord], method: str) -> Line:
    (found,) = (line for line in summarise(runs, [TARGET]) if line.method == method)
    return found


class TestTarget:
    @pytest.mark.parametrize(
        ("text", "target"),
        [
            ("test-error=0.025", Target("test_error", 0.025)),
            ("grad_norm2=1e-5", Target("grad_norm2", 1e-5)),
            ("test-error-top5 = 0.55", Target("test_error_top5", 0.55)),
            ("train-loss=-1", Target("train_loss", -1.0)),
        ],
    )
    def test_is_read(self, text: str, target: Target) -> None:
        assert Target.parse(text) == target
        assert Target.parse(str(target)) == target

    def test_is_written(self) -> None:
        assert str(Target("test_error", 0.025)) == "test-error=0.025"

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("test-error", "has no value: write METRIC=VALUE"),
            ("test-eror=0.1", "no metric 'test-eror' .* did you mean 'test-error'"),
            ("speed=3", "There are train-loss, test-loss, test-error, test-error-top5, grad-norm2"),
            ("test-error=low", "'low' in target .* is no finite number"),
            ("test-error=nan", "'nan' in target .* is no finite number"),
        ],
    )
    def test_refuses_nonsense(self, text: str, words: str) -> None:
        with pytest.raises(ValueError, match=words):
            Target.parse(text)


class TestToTarget:
    def test_median_of_three_seeds(self) -> None:
        runs = [run("sgd", [0.9, *[0.5] * k, 0.1, 0.05], seed=k) for k in (1, 2, 5)]
        units = line(runs, "sgd").to_target["test-error=0.1"]
        assert units["passes"] == Spread(3.0, 2.0, 6.0, 3, 3)
        assert units["ifo"] == Spread(300, 200, 600, 3, 3)
        assert units["seconds"] == Spread(3.0, 2.0, 6.0, 3, 3)

    def test_what_is_not_reached_is_infinitely_far(self) -> None:
        reached, missed = [0.9, 0.1], [0.9, 0.5, 0.4]
        most = line([run("sgd", e, seed=k) for k, e in enumerate([reached, reached, missed])], "sgd")
        assert most.to_target[str(TARGET)]["seconds"] == Spread(1.0, 1.0, 1.0, 2, 3)
        half = line([run("sgd", e, seed=k) for k, e in enumerate([reached, missed])], "sgd")
        assert half.to_target[str(TARGET)]["seconds"] == Spread(None, 1.0, 1.0, 1, 2)
        assert half.ratio == {str(TARGET): None}
        none = line([run("sgd", missed)], "sgd")
        assert none.to_target[str(TARGET)]["seconds"] == Spread(None, None, None, 0, 1)

    def test_what_was_spent_bounds_the_median_from_below(self) -> None:
        runs = [run("sgd", e, seed=k) for k, e in enumerate([[0.9, 0.1], [0.9, 0.5, 0.4], [0.9, 0.8, 0.7, 0.6]])]
        assert line(runs, "sgd").at_least[str(TARGET)] == {"seconds": 2.0, "passes": 2.0, "ifo": 200.0}
        failed = [run("sgd", [0.9, 0.5], status="failed")]
        assert line(failed, "sgd").at_least[str(TARGET)] == {"seconds": None, "passes": None, "ifo": None}

    def test_ratio_is_to_the_best_of_all_protocols(self) -> None:
        runs = [
            run("vcsg", [0.9, 0.1], seconds=6.0, protocol="paper"),
            run("vcsg", [0.9, 0.1], seconds=4.0, protocol="tuned"),
            run("sgd", [0.9, 0.5, 0.1], seconds=1.0, protocol="tuned"),
        ]
        ratios = {(found.protocol, found.method): found.ratio[str(TARGET)] for found in summarise(runs, [TARGET])}
        assert ratios == {("paper", "vcsg"): 3.0, ("tuned", "vcsg"): 2.0, ("tuned", "sgd"): 1.0}

    def test_ratio_where_the_start_is_good_enough(self) -> None:
        assert line([run("sgd", [0.05, 0.01])], "sgd").ratio == {str(TARGET): 1.0}

    def test_a_run_that_failed_or_was_interrupted_counts(self) -> None:
        runs = [
            run("sgd", [0.9, 0.1], seed=0),
            run("sgd", [0.9], seed=1, status="failed"),
            run("sgd", [], seed=2, status="failed"),
            run("sgd", [0.9, 0.1, 0.05], seed=3, status="interrupted"),
        ]
        found = line(runs, "sgd")
        assert found.to_target[str(TARGET)]["seconds"] == Spread(None, 1.0, 1.0, 2, 4)
        assert found.status == {"finished": 1, "failed": 2, "interrupted": 1}
        assert found.seeds == 4

    def test_searches_are_left_out(self) -> None:
        assert summarise([run("sgd", [0.9, 0.1], role="search")], [TARGET]) == []


class TestFinal:
    def test_median_and_ends(self) -> None:
        runs = [run("sgd", [0.9, error], seed=k) for k, error in enumerate([0.3, 0.1, 0.2])]
        final = line(runs, "sgd").final
        assert final["test_error"] == Spread(0.2, 0.1, 0.3, 3, 3)
        assert final["train_loss"] == Spread(1.0, 1.0, 1.0, 3, 3)
        assert final["passes"].median == 1.0
        assert "grad_norm2" not in final

    def test_a_failed_run_has_no_final_metric(self) -> None:
        runs = [run("sgd", [0.9, 0.2], seed=0), run("sgd", [0.9, 0.01], seed=1, status="failed")]
        final = line(runs, "sgd").final
        assert final["test_error"] == Spread(None, 0.2, 0.2, 1, 2)
        assert final["seconds"] == Spread(1.0, 1.0, 1.0, 2, 2)

    def test_what_is_not_finite_counts_as_infinite(self) -> None:
        runs = [run("sgd", [0.9, error], seed=k) for k, error in enumerate([0.2, 0.3, None])]
        assert line(runs, "sgd").final["test_error"] == Spread(0.3, 0.2, 0.3, 2, 3)


def test_lines_are_ordered_by_time_to_the_first_target() -> None:
    runs = [
        run("gd", [0.9, 0.8], protocol="paper"),
        run("svrg", [0.9, 0.7], protocol="paper"),
        run("sgd", [0.9, 0.1], seconds=3.0, protocol="paper"),
        run("vcsg", [0.9, 0.1], seconds=2.0, protocol="paper"),
        run("sgd", [0.9, 0.1], seconds=1.0, protocol="tuned"),
    ]
    order = [(found.protocol, found.method) for found in summarise(runs, [TARGET])]
    assert order == [("paper", "vcsg"), ("paper", "sgd"), ("paper", "svrg"), ("paper", "gd"), ("tuned", "sgd")]


def test_nothing_to_summarise() -> None:
    assert summarise([], [TARGET]) == []
    (found,) = summarise([run("sgd", [0.9])], [])
    assert found.to_target == found.ratio == {}


class TestClaims:
    def rows(self, runs: list[RunRecord]) -> dict[tuple[str, str], tuple[str, str, str]]:
        found = claim_rows(CLAIM, summarise(runs, [TARGET]))
        return {(row.protocol, row.rival): (str(row.seconds), str(row.ifo), row.remark) for row in found}

    def test_measured_beside_claimed(self) -> None:
        runs = [
            run("vcsg", [0.9, 0.1], seconds=10.0, protocol="paper"),
            run("scsg", [0.9, 0.5, 0.1], seconds=10.0, protocol="paper"),
            run("paper-svrg", [0.9, 0.5, 0.2, 0.1], seconds=5.0, protocol="paper"),
            run("sgd", [0.9, 0.1], seconds=2.0, protocol="paper"),
            run("paper-sgd", [0.9, *[0.5] * 11, 0.1], seconds=10.0, protocol="paper"),
        ]
        assert self.rows(runs) == {
            ("paper", "scsg"): ("2.0×", "2.0×", ""),
            ("paper", "svrg"): ("1.5×", "3.0×", ""),
            ("paper", "sgd"): ("12×", "12×", ""),
        }
        row = claim_rows(CLAIM, summarise(runs, [TARGET]))[1]
        assert (row.label, row.claimed, row.claimed_seconds) == ("PAPER-SVRG", 3.0, 16.0)
        assert row.own_seconds == Spread(10.0, 10.0, 10.0, 1, 1)

    def test_plain_baselines_where_the_steps_are_tuned(self) -> None:
        runs = [
            run("vcsg", [0.9, 0.1], seconds=4.0, protocol="tuned"),
            run("sgd", [0.9, 0.1], seconds=1.0, protocol="tuned"),
            run("paper-sgd", [0.9, 0.1], seconds=40.0, protocol="tuned"),
        ]
        rows = self.rows(runs)
        assert rows["tuned", "sgd"] == ("0.25×", "1.0×", "")
        assert rows["tuned", "svrg"] == ("–", "–", "SVRG was not run")

    def test_a_bound_where_one_did_not_reach_it(self) -> None:
        near, far = [0.9, 0.1], [0.9, 0.5, 0.5, 0.5, 0.5]
        rows = self.rows([run("vcsg", near, protocol="paper"), run("scsg", far, protocol="paper")])
        assert rows["paper", "scsg"] == ("≥ 4.0×", "≥ 4.0×", "SCSG did not reach it within the budget")
        rows = self.rows([run("vcsg", far, protocol="paper"), run("scsg", near, protocol="paper")])
        assert rows["paper", "scsg"] == ("≤ 0.25×", "≤ 0.25×", "VCSG did not reach it within the budget")
        rows = self.rows([run("vcsg", far, protocol="paper"), run("scsg", far, protocol="paper")])
        assert rows["paper", "scsg"] == ("–", "–", "neither VCSG nor SCSG reached it within the budget")

    def test_seeds_and_failures_are_named(self) -> None:
        own = [run("vcsg", errors, seed=k) for k, errors in enumerate([[0.9, 0.1], [0.9, 0.1], [0.9, 0.5]])]
        rows = self.rows([*own, run("scsg", [0.9], status="failed"), run("sgd", [0.9, 0.1])])
        assert rows["", "scsg"] == ("–", "–", "VCSG reached it with 2 of 3 seeds; SCSG failed")
        assert rows["", "sgd"] == ("1.0×", "1.0×", "VCSG reached it with 2 of 3 seeds")

    def test_without_vcsg_there_is_nothing_to_compare(self) -> None:
        assert self.rows([run("sgd", [0.9, 0.1])]) == {}

    def test_the_target_has_to_be_among_those_summarised(self) -> None:
        with pytest.raises(ValueError, match=r"summarise with test-error=0\.1 too"):
            claim_rows(CLAIM, summarise([run("vcsg", [0.9])], []))
