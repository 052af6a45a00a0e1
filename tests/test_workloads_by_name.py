"""Workloads by name: all that are listed, what they measure, and names that are wrong."""

import math
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import vcsg
from vcsg.workloads import (
    Claim,
    Family,
    Workload,
    data_sets,
    least_squares,
    load,
    mnist_mini,
    models,
    names,
    problems,
    register_model,
    register_problem,
    register_workload,
    workload,
)
from vcsg.workloads.workload import parameters

ROWS = b"1 1:3 2:4\n0 1:2\n1 2:1\n0 3:5\n"
SYNTHETIC = [f"synthetic:n=40,d=5,seed=3/{problem}" for problem in problems.problems()]


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No data but those in the folder, and no cache but a new one."""
    monkeypatch.setenv("VCSG_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("VCSG_DATA", str(tmp_path))
    return tmp_path


@pytest.fixture
def rows(alone: Path) -> str:
    (alone / "rows").write_bytes(ROWS)
    (alone / "rows.t").write_bytes(b"1 1:1\n0 2:2 3:1\n")
    return "libsvm:rows"


def small(found: Workload) -> Workload:
    """Few samples of it, for a quick step."""
    return replace(found, train=(found.train[0][:8], found.train[1][:8]))


@pytest.mark.parametrize("name", ["mnist-mini/lenet-300-100", "mnist-mini/lenet-5", *SYNTHETIC])
def test_a_workload_can_be_minimised(name: str) -> None:
    found = load(name)
    assert found.name == name
    torch.manual_seed(0)
    model = found.make_model()
    optimizer = vcsg.SVRG(model.parameters(), n=8, b=2, L=found.L or 10.0)
    part = small(found)
    before = found.objective(model, part.train).item()
    for batch in optimizer.batches(part.train, passes=6):

        def closure(batch: tuple[torch.Tensor, torch.Tensor] = tuple(batch)) -> torch.Tensor:
            optimizer.zero_grad()
            loss = found.objective(model, batch)
            loss.backward()
            return loss

        optimizer.step(closure)
    assert found.objective(model, part.train).item() < before


def test_a_network_is_what_it_is_by_hand() -> None:
    found, data = load("mnist-mini/lenet-300-100"), mnist_mini()
    assert found.n == 10_000
    assert found.L is None
    assert found.claim is None
    assert torch.equal(found.train[0], data.train[0])
    assert found.test
    torch.manual_seed(0)
    model = found.make_model()
    batch = found.test[0][:300], found.test[1][:300]
    logits = model(batch[0])
    ranks = [row.argsort(descending=True).tolist().index(y) for row, y in zip(logits, batch[1].tolist(), strict=True)]
    assert found.objective(model, batch).item() == cross_entropy(logits, batch[1]).item()
    assert found.measure(model, batch) == {
        "test_loss": pytest.approx(cross_entropy(logits, batch[1]).item()),
        "test_error": sum(rank > 0 for rank in ranks) / 300,
        "test_error_top5": sum(rank > 4 for rank in ranks) / 300,
    }


def test_a_share_equals_the_target_that_it_meets() -> None:
    """250 wrong of 10,000 are an error of 0.025, not of 0.02500000037 as float32 has it."""
    wrong = torch.arange(10_000) < 250
    assert workload._share(wrong) == 0.025


def test_models_are_fresh_and_follow_the_seed() -> None:
    found = load("mnist-mini/lenet-300-100")
    torch.manual_seed(5)
    first, second = found.make_model(), found.make_model()
    torch.manual_seed(5)
    again = found.make_model()
    assert torch.equal(first[1].weight, again[1].weight)
    assert not torch.equal(first[1].weight, second[1].weight)


@pytest.mark.parametrize("name", SYNTHETIC)
def test_a_synthetic_problem_is_the_drawn_one(name: str) -> None:
    found = load(name)
    problem = problems.problems()[name.rpartition("/")[2]].draw(40, 5, 3)
    assert torch.equal(found.train[0], problem.rows)
    assert torch.equal(found.train[1], problem.targets)
    assert found.L == problem.L
    assert found.test is None
    model = found.make_model()
    assert [key for key, _ in model.named_parameters()] == ["x"]
    assert torch.equal(model.x.detach(), problem.start)
    found.objective(model, found.train).backward()
    torch.testing.assert_close(model.x.grad, problem.gradient(problem.start), rtol=1e-12, atol=1e-14)
    assert found.make_model().x.data_ptr() != model.x.data_ptr()


@pytest.mark.parametrize(
    ("sizes", "n", "d", "seed"), [("", 2000, 50, 0), (":d=3", 2000, 3, 0), (":seed=4,n=7", 7, 50, 4)]
)
def test_sizes_of_synthetic_data_are_optional(sizes: str, n: int, d: int, seed: int) -> None:
    found = load(f"synthetic{sizes}/least-squares")
    assert torch.equal(found.train[0], least_squares(n, d, seed).rows)


def test_a_problem_on_a_file(rows: str) -> None:
    """Rows of unit norm; the smaller label is −1; L is then that of unit rows."""
    found = load(f"{rows}/nonconvex-logistic")
    assert found.train[0].tolist() == [[0.6, 0.8, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]
    assert found.train[1].tolist() == [1, -1, 1, -1]
    assert found.L == pytest.approx(0.35)
    assert found.test
    assert found.test[1].tolist() == [1, -1]
    assert found.test[0].norm(dim=1).tolist() == pytest.approx([1, 1])
    model = found.make_model()
    assert model.x.tolist() == [0, 0, 0]
    assert found.objective(model, found.train).item() == pytest.approx(math.log(2))
    with torch.no_grad():
        model.x[0] = -1.0
    measured = found.measure(model, found.test)
    # The first is on the wrong side, the second on neither: log 2.
    losses = [math.log1p(math.exp(1)), math.log(2)]
    assert measured == {"test_loss": pytest.approx(sum(losses) / 2 + 0.05 / 2), "test_error": 1.0}


@pytest.mark.parametrize("problem", ["least-squares", "robust-regression"])
def test_regression_measures_its_loss_alone(rows: str, problem: str) -> None:
    found = load(f"{rows}/{problem}")
    assert found.test
    assert list(found.measure(found.make_model(), found.test)) == ["test_loss"]
    assert found.L == pytest.approx(1)


def test_real_targets_are_kept(alone: Path) -> None:
    (alone / "rows").write_bytes(b"1.5 1:2\n-3 1:1 2:1\n7 2:2\n")
    found = load("libsvm:rows/least-squares")
    assert found.train[1].tolist() == [1.5, -3, 7]
    assert found.test is None
    for model in ("nonconvex-logistic", "lenet-300-100"):
        with pytest.raises(ValueError, match=f"rows/{model}: {model} .*the data have real targets: choose least-sq"):
            load(f"libsvm:rows/{model}")


def test_a_network_on_rows(rows: str) -> None:
    found = load(f"{rows}/lenet-300-100")
    assert found.train[0].dtype == torch.float32
    assert found.train[0].tolist()[0] == [3, 4, 0]
    assert found.train[1].tolist() == [1, 0, 1, 0]
    assert found.test
    assert list(found.measure(found.make_model(), found.test)) == ["test_loss", "test_error"]


@pytest.mark.parametrize("name", ["mnist-mini/lenet-300-100", SYNTHETIC[0]])
def test_on_a_device(name: str) -> None:
    found = load(name, device="meta")
    tensors = [*found.train, *(found.test or ()), *found.make_model().parameters()]
    assert {tensor.device.type for tensor in tensors} == {"meta"}


def test_the_claims_of_the_paper() -> None:
    known = {
        "mnist/lenet-300-100": Claim("test_error", 0.025, {"scsg": 2, "svrg": 3, "sgd": 4}, 16),
        "cifar10/lenet-5": Claim("test_error", 0.3, {"scsg": 4, "svrg": 6, "sgd": 13}, None),
        "cifar10/vgg-16": Claim("test_error", 0.3, {"scsg": 4, "svrg": 6, "sgd": 13}, None),
        "tiny-imagenet/vgg-16": Claim("test_error_top5", 0.55, {"scsg": 5, "svrg": 5, "sgd": 5}, None, up_to=True),
    }
    assert known == workload.CLAIMS
    assert known.keys() <= {listing.name for listing in names()}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mnist", "'mnist' is not a workload: write DATASET/MODEL"),
        ("", "'' is not a workload"),
        ("mnst/lenet-5", r"no data set 'mnst': did you mean 'mnist'\? There are mnist-mini, .*synthetic:n=2000,d=50"),
        ("mnist/lenet5", r"no model or problem 'lenet5', of 'mnist/lenet5': did you mean 'lenet-5'\? There are lenet-"),
        ("mnist/", "no model or problem ''"),
        ("a9a/lenet-5", r"a9a/lenet-5: lenet-5 needs square images .*, not samples of shape \(123,\)"),
        ("mnist/vgg-16", "mnist/vgg-16: VGG-16 halves images five times: 28 × 28 pixels are too few"),
        ("mnist/nonconvex-logistic", "needs two classes, and the data have 10 classes: choose a network"),
        ("cifar10/least-squares", "needs two classes or real targets, and the data have 10 classes"),
        ("synthetic/vgg-16", "vgg-16, of 'synthetic/vgg-16', is a network: synthetic data go with least-squares,"),
        ("synthetic:n=x/least-squares", "'n=x' in .*: write synthetic:n=2000,d=50,seed=0"),
        ("synthetic:n=-3/least-squares", "'n=-3' in"),
        ("synthetic:n=²/least-squares", "'n=²' in"),
        ("synthetic:m=3/least-squares", "'m=3' in"),
        ("synthetic:n=3,/least-squares", "'' in"),
        ("synthetic:n=0/least-squares", "n = 0 must be ≥ 1"),
    ],
)
def test_bad_names_fail_before_anything_is_read(alone: Path, name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load(name)
    assert os.listdir(alone) == []


def test_names_lists_what_fits(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload, "_REGISTERED", {})
    (alone / "a9a").write_bytes(ROWS)
    (alone / "a9a.t.xz").write_bytes(b"never looked into")
    found = {listing.name: listing for listing in names()}
    for data in data_sets().values():
        for model in (*models.models(), *problems.problems()):
            try:
                d = parameters(data.shape, data.classes, model)
            except ValueError:
                assert f"{data.name}/{model}" not in found
            else:
                listing = found.pop(f"{data.name}/{model}")
                assert (listing.n, listing.d) == (data.n, d)
                there = (alone / "a9a", alone / "a9a.t.xz") if data.name == "a9a" else None if data.find else ()
                assert listing.files == there
                assert (listing.download > 0) == (there is None)
    assert list(found) == [f"synthetic:n=2000,d=50/{problem}" for problem in problems.problems()]
    assert {(listing.n, listing.d, listing.files) for listing in found.values()} == {(2000, 50, ())}
    assert sorted(os.listdir(alone)) == ["a9a", "a9a.t.xz"]


@pytest.mark.parametrize("name", [listing.name for listing in names() if listing.files == ()])
def test_what_is_listed_loads_as_listed(name: str) -> None:
    [listing] = [listing for listing in names() if listing.name == name]
    found = load(name)
    assert (found.n, sum(p.numel() for p in found.make_model().parameters())) == (listing.n, listing.d)


def test_registered_parts_are_known_by_name(rows: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(problems, "_FAMILIES", problems.problems())
    monkeypatch.setattr(models, "_MODELS", models.models())
    monkeypatch.setattr(workload, "_REGISTERED", {})
    register_model("linear", lambda shape, classes: nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes)))
    register_problem(
        "regression", Family(problems.problems()["least-squares"].on, problems.problems()["least-squares"].draw)
    )
    assert sum(p.numel() for p in load("mnist-mini/linear").make_model().parameters()) == 7850
    assert load(f"{rows}/regression").L == pytest.approx(1)
    assert load("synthetic:n=3,d=2/regression").n == 3
    register_workload("own", 3, 2, lambda data_dir, device: load("synthetic:n=3,d=2/least-squares", device=device))
    assert load("own").n == 3
    assert {"mnist-mini/linear", "a9a/regression", "own"} <= {listing.name for listing in names()}


@pytest.mark.data
@pytest.mark.skipif(not os.environ.get("VCSG_DATA"), reason="VCSG_DATA is not set: the real sets are not there")
@pytest.mark.parametrize("name", ["a9a/nonconvex-logistic", "phishing/robust-regression", "mnist/lenet-300-100"])
def test_real_workloads(name: str) -> None:
    found = load(name)
    model = found.make_model()
    assert math.isfinite(found.objective(model, found.train).item())
    if found.L is not None:
        assert found.train[0].norm(dim=1).max().item() == pytest.approx(1)
        assert set(found.train[1].tolist()) == {-1.0, 1.0}
