"""The rules of a study: budgets, options as they are written, protocols, the search for a step size."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from quadratic import smoothness
from torch import Tensor

import vcsg
from vcsg.extend import (
    Method,
    register_baseline,
    register_data_set,
    register_method,
    register_model,
    register_problem,
    register_workload,
)
from vcsg.method import registry
from vcsg.method.schedules import VarianceControlled
from vcsg.study import methods, settings
from vcsg.study.baselines import BASELINES
from vcsg.study.budgets import Budget
from vcsg.study.compare import parse_seeds, parse_sizes
from vcsg.study.protocols import Entry, default_step, entries, smoothness_method
from vcsg.study.records import RunConfig, RunRecord
from vcsg.study.search import Size, best_exponent, choose, choose_among, next_exponent, next_trial, quotas
from vcsg.study.settings import MethodSettings
from vcsg.workloads import datasets, models, problems, workload

# --- budgets and seeds


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("30passes", {"passes": 30.0}),
        ("1 pass", {"passes": 1.0}),
        ("0.5passes", {"passes": 0.5}),
        ("120s", {"seconds": 120.0}),
        ("1.5 seconds", {"seconds": 1.5}),
        ("500000ifo", {"ifo": 500000.0}),
        ("5e5IFO", {"ifo": 500000.0}),
        ("30passes,120s", {"passes": 30.0, "seconds": 120.0}),
    ],
)
def test_a_budget_is_read_and_written(text: str, limits: dict[str, float]) -> None:
    budget = Budget.parse(text)
    assert budget.as_dict() == limits
    assert Budget.parse(str(budget)) == budget


@pytest.mark.parametrize("text", ["", "30", "passes", "30 epochs", "-1s", "0passes", "1e999s", "1.2.3s", "1s,2s"])
def test_a_wrong_budget_is_refused_with_a_right_one(text: str) -> None:
    with pytest.raises(ValueError, match=r"write 30passes|give a finite number above 0"):
        Budget.parse(text)


def test_evaluations_and_parts_of_a_budget() -> None:
    assert Budget(passes=30).every(1000) == 0.5
    assert Budget(ifo=30_000).every(1000) == 0.5
    assert Budget(passes=1).every(1000) == 0.1
    assert Budget(seconds=10).every(1000) == 1.0
    assert Budget(passes=100).part(0.1, 1000, least=3) == Budget(passes=10)
    assert Budget(passes=20).part(0.1, 1000, least=3) == Budget(passes=3)
    assert Budget(passes=2).part(0.1, 1000, least=3) == Budget(passes=2)
    assert Budget(ifo=20_000, seconds=60).part(0.1, 1000, least=3) == Budget(ifo=3000, seconds=6)


def test_seeds_are_a_number_or_a_list() -> None:
    assert parse_seeds("3") == (0, 1, 2)
    assert parse_seeds("0,5, 7") == (0, 5, 7)
    assert parse_seeds("5,") == (5,)
    for text in ("", "0", "-1", "a", "1.5", ","):
        with pytest.raises(ValueError, match="seeds"):
            parse_seeds(text)


# --- options


def test_values_are_read_as_what_they_are() -> None:
    made = settings.parse(["eps=0.01", "b=16", "comparison=lemma", "first_epoch=false", "sigma=none", "scsg.b = 4"])
    assert made.common == {"eps": 0.01, "b": 16, "comparison": "lemma", "first_epoch": False, "sigma": None}
    assert made.own == {"scsg": {"b": 4}}
    assert made.of("vcsg") == {"eps": 0.01, "comparison": "lemma", "first_epoch": False, "sigma": None}
    assert made.of("scsg") == {"eps": 0.01, "b": 4}
    assert made.of("svrg") == {"b": 16}


def test_a_file_says_the_same_and_the_command_line_goes_before_it(tmp_path: Path) -> None:
    path = tmp_path / "options.toml"
    path.write_text('eps = 0.01\nL = 2\n[scsg]\nb = 16\nK = 1.0\n[vcsg]\nsigma = "none"\n')
    made = settings.parse(["eps=0.1", "scsg.b=8"], path)
    assert made == MethodSettings({"eps": 0.1, "L": 2}, {"scsg": {"b": 8, "K": 1.0}, "vcsg": {"sigma": None}})


@pytest.mark.parametrize(
    ("content", "message"),
    [("eps = ", "is not TOML"), ("eps = [1, 2]", r"eps = \[1, 2\]: give a number, a word"), (None, "No such file")],
)
def test_a_wrong_file_is_refused(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "options.toml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ValueError, match=message):
        settings.parse([], path)


@pytest.mark.parametrize(
    ("given", "used", "message"),
    [
        (["eps"], ["vcsg"], "--set 'eps': write NAME=VALUE"),
        (["esp=1"], ["vcsg"], "vcsg has no option 'esp': did you mean 'eps'"),
        (["esp=1"], ["vcsg", "sgd"], "none of vcsg, sgd has an option 'esp': did you mean 'eps'"),
        (["scsg.b=1"], ["vcsg"], "an option is set for 'scsg', which is not run: did you mean 'vcsg'"),
        (["vcsg.b=1"], ["vcsg"], "vcsg has no option 'b'"),
        (["wieght_decay=1"], ["sgd"], "did you mean 'weight_decay'"),
        (["eps=much"], ["vcsg"], r"eps = 'much' \(option of vcsg\): give a number or none"),
        (["b=1.5"], ["svrg"], r"b = 1.5 \(option of svrg\): give a whole number"),
        (["b=true"], ["svrg"], r"b = True \(option of svrg\): give a whole number"),
        (["first_epoch=1"], ["vcsg"], "first_epoch = 1.*give true or false"),
        (["output=3"], ["vcsg"], "output = 3.*give a word"),
        (["n=3"], ["vcsg"], "vcsg has no option 'n'"),
        (["seed=3"], ["adamw"], "adamw has no option 'seed'"),
    ],
)
def test_wrong_options_are_refused_with_the_nearest(given: list[str], used: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        settings.parse(given).check(used)


def test_options_of_a_method_registered_without_postponed_annotations() -> None:
    """A user's own function may have types in place of their names."""
    from inspect import Parameter

    for noted, right, wrong in ((int, 3, 1.5), (float | None, None, "x"), (Parameter.empty, "x", object)):
        parameter = Parameter("b", Parameter.KEYWORD_ONLY, annotation=noted)
        kinds = methods._kinds(parameter)
        assert any(methods._fits(right, kind) for kind in kinds)
        assert noted is Parameter.empty or not any(methods._fits(wrong, kind) for kind in kinds)


def test_every_method_has_options_and_a_label() -> None:
    for name in methods.names():
        assert "lr" in methods.parameters(name)
        assert methods.label(name, {})
    assert methods.label("scsg", {"b": 16, "lr": 0.1, "L": 2}) == "SCSG, b=16"
    assert methods.label("vcsg", {"paper": True, "b_min": 2}) == "VCSG as printed, b_min=2"
    assert methods.label("vcsg", {"paper": False}) == "VCSG"
    assert methods.label("sgd-momentum", {"momentum": 0.5, "b": 8}) == "SGD, momentum 0.5, b=8"
    assert methods.anchored("vcsg")
    assert not methods.anchored("sgd")
    assert not methods.anchored("adamw")


# --- protocols


def made(names: str, protocols: str = "default", *given: str) -> dict[str, dict[str, Any]]:
    return {e.path: e.options for e in entries(names.split(","), protocols.split(","), settings.parse(given))}


def test_the_methods_of_each_protocol() -> None:
    assert made("vcsg,svrg") == {"default/vcsg": {}, "default/svrg": {}}
    printed = {"paper/vcsg": {"paper": True}, "paper/paper-svrg": {}, "paper/paper-sgd": {}}
    assert made("vcsg,svrg,sgd", "paper") == printed
    assert vcsg.make("vcsg", paper=True).schedule == VarianceControlled()
    assert made("vcsg,sgd", "tuned", "vcsg.b_min=4") == {"tuned/vcsg": {"b_min": 4}, "tuned/sgd": {"b": 64}}
    both = made("vcsg,svrg,tuned:adamw", "tuned,paper")
    assert list(both) == ["paper/vcsg", "paper/paper-svrg", "tuned/vcsg", "tuned/svrg", "tuned/adamw"]
    assert made("paper:sgd,sgd,sgd", "default") == {"default/sgd": {}, "paper/paper-sgd": {}}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("vscg",), "no method 'vscg': did you mean 'vcsg'"),
        (("vcsg", "papr"), "no protocol 'papr': did you mean 'paper'"),
        (("tund:vcsg",), "no protocol 'tund': did you mean 'tuned'"),
        (("adamw", "paper"), "adamw is not of the paper: run it as default:adamw or tuned:adamw"),
        (("vcsg", "tuned", "lr=1"), "the protocol tuned chooses the step size"),
        (("vcsg", "tuned", "L=1"), "the protocol tuned chooses the step size"),
        (("vcsg", "paper", "lr=1"), "the protocol paper has step sizes of its own"),
        (("vcsg,scsg", "paper", "vcsg.L=1"), "gives all methods one L"),
        (("svrg", "paper", "svrg.b=1"), "an option is set for 'svrg', which is not run: There are paper-svrg"),
    ],
)
def test_what_a_protocol_cannot_have_is_refused(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(*arguments)


def test_who_estimates_the_L_of_whom() -> None:
    """One for all in `paper`; each for itself in `default`, where only momentum is given one."""
    paper = entries(["vcsg", "scsg", "svrg"], ["paper"], settings.parse(["vcsg.b_min=4"]))
    assert {smoothness_method(e, paper)[0] for e in paper} == {"vcsg"}  # type: ignore[index]
    assert {smoothness_method(e, paper)[1]["b_min"] for e in paper} == {4}  # type: ignore[index]
    others = entries(["scsg"], ["paper"], MethodSettings())
    assert [smoothness_method(e, others) for e in others] == [("vcsg", {"paper": True})]
    default = entries(["vcsg", "sgd-momentum", "adamw"], ["default"], MethodSettings())
    assert [smoothness_method(e, default) for e in default] == [None, ("sgd", {"b": 64}), None]
    tuned = entries(["scsg", "sgd-momentum", "adamw"], ["tuned"], MethodSettings())
    assert [smoothness_method(e, tuned) for e in tuned] == [("scsg", {"b": 16}), ("sgd", {"b": 64}), None]
    given = entries(["vcsg", "scsg"], ["paper"], MethodSettings({"L": 2.0}))
    assert [smoothness_method(e, given) for e in given] == [None, None]


def first_step(name: str, **options: float) -> float:
    """η of the first epoch on a small problem."""
    x, rows = torch.nn.Parameter(torch.ones(3)), torch.ones(20, 3)
    optimizer = vcsg.FiniteSumOptimizer([x], 20, name, **options)
    for (batch,) in optimizer.batches([rows], until=lambda record: True):

        def closure(batch: Tensor = batch) -> Tensor:
            loss = (batch @ x).square().mean()
            loss.backward()
            return loss.detach()

        optimizer.step(closure)
    assert optimizer.record is not None
    return optimizer.record.step_size


@pytest.mark.parametrize("name", sorted(vcsg.methods()))
def test_the_default_step_is_that_of_the_method_with_L_alone(name: str) -> None:
    lr = default_step(Entry("tuned", name, {}), 2.5)
    assert first_step(name, lr=lr) == pytest.approx(first_step(name, **smoothness(name, 2.5)))


def test_the_default_steps_of_the_baselines() -> None:
    assert default_step(Entry("tuned", "adamw", {}), None) == 1e-3
    assert default_step(Entry("tuned", "torch-muon", {"adamw_lr": 0.1}), None) == 1e-3
    assert default_step(Entry("tuned", "schedule-free-adamw", {}), None) == 0.0025
    assert default_step(Entry("tuned", "prodigy", {}), None) == 1.0
    assert default_step(Entry("tuned", "sgd-momentum", {"momentum": 0.5}), 2.0) == pytest.approx(0.5 / 6)


# --- the search


def tried(loss: Callable[[float], float], trials: int) -> dict[float, float]:
    """A search for the minimum of a function of the exponent."""
    losses: dict[float, float] = {}
    for _ in range(trials):
        exponent = next_exponent(losses)
        assert exponent not in losses
        losses[exponent] = loss(exponent)
    return losses


@pytest.mark.parametrize("best", [-7.3, -4.0, -2.2, -0.4, 0.0, 0.7, 1.9, 3.0, 5.1, 6.6])
def test_a_search_comes_near_the_best_of_a_valley(best: float) -> None:
    """With seven trials, within a factor of 2 as far as 2^5 from the default step; with twelve, within √2 anywhere."""
    assert abs(best_exponent(tried(lambda e: abs(e - best), 12)) - best) <= 0.5
    if abs(best) <= 5:
        assert abs(best_exponent(tried(lambda e: abs(e - best), 7)) - best) <= 1


def test_a_search_is_what_it_says() -> None:
    assert list(tried(lambda e: abs(e - 4.4), 7)) == [0, 2, -2, 4, 6, 5, 3]
    assert list(tried(lambda e: abs(e + 4), 7)) == [0, 2, -2, -4, -6, -3, -5]
    assert list(tried(lambda e: abs(e), 7)) == [0, 2, -2, 1, -1, 0.5, -0.5]


def test_where_all_diverge_steps_become_smaller() -> None:
    assert list(tried(lambda e: math.inf, 5)) == [0, 2, -2, -4, -6]
    assert best_exponent(tried(lambda e: math.inf if e > -5 else e, 7)) == -10


def trial(loss: float | None, status: str = "finished") -> RunRecord:
    config = RunConfig("w", "sgd", "SGD", {}, 0, {"passes": 1.0}, 1.0, "tuned", "search")
    row = {"train_loss": loss, "ifo": 100, "seconds": 0.5, "epoch": 2}
    return RunRecord(Path("x"), config, {}, "", status, evaluations=[row])


def test_a_choice_tells_what_it_cost_and_whether_it_lies_at_the_edge() -> None:
    found = choose(
        {0.0: trial(3.0), 2.0: trial(1.0), -2.0: trial(4.0), 4.0: trial(None), 3.0: trial(1.0, "failed")}, 0.1
    )
    assert found.lr == pytest.approx(0.4)
    assert found.losses == {0.0: 3.0, 2.0: 1.0, -2.0: 4.0, 4.0: math.inf, 3.0: math.inf}
    assert not found.at_edge
    assert (found.ifo, found.seconds) == (500, 2.5)
    notes = found.notes("3passes")
    assert notes["factors"] == [1, 4, 0.25, 16, 8]
    assert (notes["trials"], notes["factor"], notes["at_edge"]) == (5, 4, False)
    assert choose({0.0: trial(1.0), 2.0: trial(2.0), -2.0: trial(0.5)}, 0.1).at_edge
    with pytest.raises(ValueError, match=r"every step size that was tried diverged \(0.1, 0.4\)"):
        choose({0.0: trial(None), 2.0: trial(1.0, "failed")}, 0.1)


# --- the search over b


def tried_sizes(loss: Callable[[int, float], float], sizes: list[int], trials: int) -> dict[Size, dict[float, float]]:
    """A search for the minimum of a function of b and the exponent."""
    losses: dict[Size, dict[float, float]] = {}
    while (following := next_trial(losses, sizes, trials)) is not None:
        b, exponent = following
        assert b is not None
        assert exponent not in losses.get(b, {})
        losses.setdefault(b, {})[exponent] = loss(b, exponent)
    return losses


def test_a_search_over_one_size_or_none_is_the_search_over_the_step() -> None:
    for sizes in ([None], [64]):
        losses: dict[Size, dict[float, float]] = {}
        for exponent in tried(lambda e: abs(e - 4.4), 7):
            assert next_trial(losses, sizes, 7) == (sizes[0], exponent)
            losses.setdefault(sizes[0], {})[exponent] = abs(exponent - 4.4)
        assert next_trial(losses, sizes, 7) is None


def test_a_search_over_b_begins_each_where_the_one_before_was_best() -> None:
    """The best exponent rises by 1 with every doubling of b, from 3.2; the loss is least at b = 256."""
    places = {64: 3.2, 128: 4.2, 256: 5.2, 512: 6.2}
    found = tried_sizes(lambda b, e: abs(e - places[b]) + abs(math.log2(b / 256)), list(places), 7)
    assert {b: list(own) for b, own in found.items()} == {
        64: [0, 2, -2, 4, 6, 5, 3],
        128: [3, 4, 2, 5],
        256: [4, 5, 3, 6],
        512: [5, 6, 4, 7],
    }
    assert [len(own) for own in found.values()] == quotas(list(places), 7) == [7, 4, 4, 4]
    assert quotas([64, 128], 3) == [3, 3]


def test_a_search_over_b_goes_on_below_what_diverged() -> None:
    found = tried_sizes(lambda b, e: math.inf if e > -5 else e, [8, 16], 3)
    assert {b: list(own) for b, own in found.items()} == {8: [0, 2, -2], 16: [-2, -1, -3]}


def test_a_choice_of_b_is_that_of_the_least_loss() -> None:
    made = {64: {0.0: trial(3.0), 2.0: trial(1.0)}, 128: {2.0: trial(None), 1.0: trial(0.5)}, 256: {1.0: trial(0.5)}}
    found = choose_among(made, 0.1)
    assert (found.b, found.lr, found.exponent) == (128, pytest.approx(0.2), 1.0)
    assert (found.ifo, found.seconds, found.b_at_edge, found.at_edge) == (500, 2.5, False, True)
    notes = found.notes("3passes")
    assert notes["b_tried"] == [64, 64, 128, 128, 256]
    assert notes["factors"] == [1, 4, 4, 2, 2]
    assert notes["losses"] == [3.0, 1.0, math.inf, 0.5, 0.5]
    assert (notes["trials"], notes["b"], notes["factor"], notes["b_at_edge"]) == (5, 128, 2, False)
    assert choose_among({64: {0.0: trial(1.0)}, 128: {0.0: trial(2.0)}}, 0.1).b_at_edge
    assert not {"b", "b_tried", "b_at_edge"} & set(choose({0.0: trial(1.0)}, 0.1).notes("1pass"))
    with pytest.raises(ValueError, match=r"every step size that was tried diverged \(0.1, 0.2\)"):
        choose_among({64: {0.0: trial(None)}, 128: {0.0: trial(None), 1.0: trial(None)}}, 0.1)


def test_the_entries_of_a_search_over_b() -> None:
    """Methods with an option b under the protocol tuned; all else is as it was."""
    names = ["gd", "vcsg", "adamw", "default:sgd", "paper:scsg"]
    found = {e.path: e for e in entries(names, ["tuned"], MethodSettings(), (32, 64))}
    plain = {e.path: e for e in entries(names, ["tuned"], MethodSettings())}
    assert found.pop("tuned/adamw") == Entry("tuned", "adamw", {"b": 32}, (32, 64))
    assert found.pop("tuned/vcsg") == Entry("tuned", "vcsg", {"b_min": 32}, (32, 64))
    del plain["tuned/adamw"], plain["tuned/vcsg"]
    assert found == plain
    entry = Entry("tuned", "sgd-momentum", {"b": 32, "momentum": 0.5}, (32, 64))
    assert (entry.label, entry.with_b(64).label) == ("SGD, momentum 0.5", "SGD, momentum 0.5, b=64")
    assert smoothness_method(entry, [entry]) == ("sgd", {"b": 32})


def test_what_a_search_over_b_cannot_have_is_refused() -> None:
    with pytest.raises(ValueError, match="search-b chooses the mini-batch size: leave b of adamw out"):
        entries(["adamw"], ["tuned"], settings.parse(["adamw.b=8"]), (32, 64))
    with pytest.raises(ValueError, match="search-b chooses the mini-batch size: leave b_min of vcsg out"):
        entries(["vcsg"], ["tuned"], settings.parse(["vcsg.b_min=8"]), (32, 64))
    with pytest.raises(ValueError, match="search-b = 32, 64: no method under the protocol tuned has an option b"):
        entries(["tuned:gd", "adamw"], ["default"], MethodSettings(), (32, 64))
    assert parse_sizes("64,128, 64,") == (64, 128)
    for text in ("", ",", "64;128", "-1", "1.5"):
        with pytest.raises(ValueError, match=r"search-b .*: give mini-batch sizes, such as 64,128"):
            parse_sizes(text)
    with pytest.raises(ValueError, match="search-b = 0, 8: give whole numbers, each at least 1"):
        parse_sizes("0,8")


# --- registries


def test_no_registry_is_overwritten_unawares(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every registry refuses a name that it has, says what to do, and replaces it where that is asked for."""
    for module, attribute in (
        (registry, "_REGISTRY"), (datasets, "_SOURCES"), (models, "_MODELS"), (problems, "_FAMILIES"),
        (workload, "_REGISTERED"),
    ):  # fmt: skip
        monkeypatch.setattr(module, attribute, dict(getattr(module, attribute)))

    def svrg() -> Method:
        return registry.make("sgd")

    def again(replace: bool) -> Iterator[Callable[[], object]]:
        """Registering what there is once more, in every registry."""
        yield lambda: register_method(replace=replace)(svrg)
        yield lambda: register_method(svrg, replace=replace)
        yield lambda: register_model("lenet-5", models.models()["lenet-5"], replace=replace)
        yield lambda: register_problem("least-squares", problems.problems()["least-squares"], replace=replace)
        yield lambda: register_data_set(datasets.source("mnist"), replace=replace)
        yield lambda: register_workload("one", 1, 1, lambda *_: loaded, replace=replace)
        yield lambda: register_baseline("adamw", BASELINES["adamw"], replace=replace)

    loaded = workload.load("synthetic:n=5,d=2/least-squares")
    register_workload("one", 1, 1, lambda *_: loaded)
    for register in again(False):
        with pytest.raises(ValueError, match="already: choose another name, or replace it with replace=True"):
            register()
    for register in again(True):
        register()
    assert registry.make("svrg").name == "sgd"
    assert vcsg.register is register_method


def test_a_method_whose_options_have_no_defaults_is_refused() -> None:
    def unfinished(b: int) -> Method:
        return registry.make("sgd", b=b)

    with pytest.raises(TypeError, match="the option 'b' of the method 'unfinished' has no default: give it one"):
        vcsg.register(unfinished)
    assert "unfinished" not in vcsg.methods()
