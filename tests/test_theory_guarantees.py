"""What is proved of the methods: against exact runs, closed forms, and sums that are made epoch by epoch."""

from __future__ import annotations

import math

import numpy as np
import pytest
from exact_runs import Terms, moving, nested, resting

import vcsg
from vcsg.method import Facts, NestedLoops, Plan, Weights, biased, make, weighted
from vcsg.theory import Setting, guarantee, moving_anchor, resting_anchor
from vcsg.theory.guarantees import epoch_gain
from vcsg.theory.planned_epochs import epochs
from vcsg.theory.resting_anchor import EpochSizes

WEIGHTS = {
    "svrg": Weights(1, -1, 1),
    "half": Weights(0.5, -0.5, 0.5),
    "sgd": Weights(1, 0, 0),
    "alg2": weighted(0.3219),
    "alg3": biased(0.625),
    "alpha": Weights(1, -0.5, 0.5),
}


def objective(terms: Terms, second: float) -> float:
    return terms.H * second / 2


FAMILIES = {
    "drawn": lambda rng: rng.uniform(-1, 1, 6) + 0.3,
    "all of curvature L": lambda rng: np.ones(6),
    "up and down": lambda rng: np.array([1.0, -1.0] * 3),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_one_step_is_within_its_quadratic_bounds_and_touches_them(name: str) -> None:
    """E f(x′) − f(x) and E d′² − d² over every mini-batch, beside the bounds; some case comes to 1 % of each."""
    nearest = [-math.inf, -math.inf]
    for family, draw in FAMILIES.items():
        for seed in range(40):
            rng = np.random.default_rng(seed)
            h, g = draw(rng), rng.standard_normal(6) * 10.0 ** rng.uniform(-3, 1)
            terms = Terms(h, g - g.mean())
            x, y, e = rng.standard_normal(3) * [0 if seed % 4 == 0 else 1, 10 if seed % 4 < 2 else 1, seed % 3]
            b, eta, (a, w, c) = 2, rng.uniform(0.05, 1.5), WEIGHTS[name]
            v = np.array([a * (hi * x - gi) + w * (hi * y - gi) for hi, gi in terms.means(b)]) + c * (terms.H * y + e)
            after = x - eta * v
            exact = (objective(terms, np.mean(after**2) - x * x), np.mean((after - y) ** 2) - (x - y) ** 2)
            noise = abs(a + w) * math.sqrt(terms.variance(x * x, x) * 4 / 5 / 2)
            forms = resting_anchor.step_forms(
                WEIGHTS[name], EpochSizes(6, b, eta, 1, True), 6, max(terms.L, abs(terms.H))
            )
            for k, form in enumerate(forms):
                bound = form.at(abs(terms.H * x), abs(x - y), abs(e), noise)
                scale = eta * (1 + eta) * (x * x + (x - y) ** 2 + e * e + noise**2) + 1e-12
                assert exact[k] <= bound + 1e-12 * scale, (family, seed)
                nearest[k] = max(nearest[k], (exact[k] - bound) / scale)
    assert min(nearest) > -0.01


def test_the_multipliers_are_those_of_the_recursion() -> None:
    h, kappa = np.array([0.3, 0.002]), np.array([0.05, 1e-4])
    largest, total = resting_anchor.multipliers(h, kappa, EpochSizes(5, 1, 0.1, 9, False))
    k, seen = np.zeros(2), []
    for _ in range(9):  # k_M = 0, k_t = h + (1 + κ)k_{t+1}; the step t has k_{t+1}
        seen.append(k)
        k = h + (1 + kappa) * k
    np.testing.assert_allclose(largest, seen[-1])
    np.testing.assert_allclose(total, np.sum(seen, 0))
    k, total = resting_anchor.multipliers(h, kappa, EpochSizes(5, 1, 0.1, 9.0, True))
    np.testing.assert_allclose(h + kappa * k, k / 9, rtol=1e-12, err_msg="d² has to cancel")
    np.testing.assert_allclose(total, 9 * k)
    assert np.isnan(resting_anchor.multipliers(h, np.array([0.2, 0.2]), EpochSizes(5, 1, 0.1, 9.0, True))[0]).all()


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_sgd_on_curvature_L_gains_exactly_what_is_proved(scale: float) -> None:
    """With all h_i = L no inequality of the proof is strict, so at ε = the mean of E‖∇f(x_t)‖² the two are equal."""
    terms = Terms(np.ones(6), Terms.draw(1).g)
    moments = resting(terms, Weights(scale, 0, 0), 2.0, 6, 2, 0.3, 9)
    eps = float(moments[:-1, 0].mean())
    gain = resting_anchor.gain(Weights(scale, 0, 0), EpochSizes(6, 2, 0.3, 9, False), 6, 1.0, terms.variance(0, 0), eps)
    assert gain == pytest.approx(objective(terms, moments[0, 0]) - objective(terms, moments[-1, 0]), rel=1e-12)


@pytest.mark.parametrize("weights", [Weights(1, -1, 1), Weights(1, -0.7, 0.7), Weights(0.3, 0, 0.7), Weights(1, 0, 0)])
def test_the_error_of_a_moving_anchor_is_within_its_bound_and_touches_it(weights: Weights) -> None:
    """E‖ε′‖² over every mini-batch beside keep·‖ε‖² + pay·‖v‖² + noise at the best split; some case comes to 2 %."""
    (a, w, c), ratios = weights, []
    for draw in FAMILIES.values():
        for seed in range(60):
            rng = np.random.default_rng(seed)
            g = rng.standard_normal(6) * 10.0 ** rng.uniform(-3, 1)
            terms = Terms(draw(rng), g - g.mean())
            eta, x = rng.uniform(0.05, 0.6), rng.standard_normal()
            error = rng.standard_normal() * (seed % 3)
            v = terms.H * x + error
            after = x - eta * v
            new = [a * (h * after - gi) + w * (h * x - gi) + c * v for h, gi in terms.means(2)]
            exact = np.mean((np.array(new) - terms.H * after) ** 2)
            keep, pay, noise = moving_anchor.error_split(
                weights, terms.L * eta, 4 / 5 / 2, terms.variance(after * after, after)
            )
            bound = float((keep * error**2 + pay * v * v + noise).min())
            assert exact <= bound * (1 + 1e-9)
            ratios.append(exact / bound if bound else 0.0)
    assert max(ratios) > 0.98


@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("geometric", [True, False])
def test_an_epoch_of_a_resting_anchor_gains_at_least_what_is_proved(name: str, geometric: bool) -> None:
    """f(y) − E f(x̃) ≥ G(ε) at ε = E‖∇f(x̃)‖², or at the least of the steps; with S* the largest E S*(x_t)."""
    shares = []
    for seed in range(12):
        terms, weights = Terms.draw(seed), WEIGHTS[name]
        rng = np.random.default_rng(100 + seed)
        B, b, N, y = int(rng.integers(2, 7)), int(rng.integers(1, 3)), int(rng.integers(2, 9)), rng.uniform(0.5, 3)
        eta = rng.uniform(0.02, 0.4) / terms.L / N ** rng.uniform(0, 1)
        last = 40 * N if geometric else N
        moments = resting(terms, weights, y, B, b, eta, last)
        second = moments[:, 0]
        variance = max(terms.variance(*own) for own in moments)
        if geometric:
            chance = (N / (N + 1)) ** np.arange(last + 1) / (N + 1)
            chance[-1] += 1 - chance.sum()  # N is cut off there
            end = float(chance @ second)
            eps, steps = terms.H**2 * end, float(chance @ np.arange(last + 1))
        else:
            end, eps, steps = second[-1], terms.H**2 * second[:-1].min(), N
        sizes = EpochSizes(B, b, eta, steps, geometric)
        gain = resting_anchor.gain(weights, sizes, terms.n, terms.L, variance, eps)
        lost = objective(terms, y**2) - objective(terms, end)
        assert gain <= lost + 1e-9 * abs(lost), (seed, gain, lost)
        if gain > -math.inf:
            shares.append(gain)
    assert len(shares) >= 4  # else the proof would hardly ever go through, and the test say nothing


@pytest.mark.parametrize(
    ("weights", "drawn"),
    [
        (Weights(1, -1, 1), "epoch"),
        (Weights(1, -0.7, 0.7), "once"),
        (Weights(0.3, 0, 0.7), "once"),
        (Weights(1, -0.4, 0.4), "epoch"),
    ],
    ids=str,
)
@pytest.mark.parametrize("geometric", [True, False])
def test_steps_with_a_moving_anchor_gain_at_least_what_is_proved(weights: Weights, drawn: str, geometric: bool) -> None:
    proved = 0
    for seed in range(12):
        terms, M = Terms.draw(seed), 7
        eta = np.random.default_rng(200 + seed).uniform(0.02, 0.35) / terms.L
        coin = geometric and drawn == "epoch"
        moments = moving(terms, weights, 1.5, 2, eta, M + 1, 1 / (M + 1) if coin else 0.0)
        second = [m[0, 0] for m in moments]
        variance = max(terms.variance(m[0, 0], m[0, 2]) for m in moments)
        # M + 1 steps: the first is along the exact gradient
        eps = terms.H**2 * min(second[:-1])
        gain = moving_anchor.gain(
            weights, EpochSizes(terms.n, 2, eta, M, geometric), terms.n, terms.L, variance, eps, drawn
        )
        lost = objective(terms, second[0]) - objective(terms, second[-1])
        assert gain <= lost + 1e-12
        proved += gain > -math.inf
    assert proved >= 3


def test_nested_anchors_gain_at_least_what_is_proved() -> None:
    plan = Plan(6, 2, 1.0, 6, levels=(2, 1, 2), sizes=(2, 3, 2))
    for seed in range(2):
        terms = Terms.draw(seed)
        for eta in (0.1 / terms.L, 0.3 / terms.L):
            second = nested(terms, plan, 1.5, eta)
            gain = moving_anchor.nested_gain(plan, eta, terms.n, terms.L, terms.H**2 * min(second[:-1]))
            assert gain <= objective(terms, second[0]) - objective(terms, second[-1]) + 1e-12
    assert moving_anchor.nested_gain(plan, 0.1, 6, 1.0, 1.0) == pytest.approx(4 * 0.1 / 2)
    assert moving_anchor.nested_gain(plan, 0.9, 6, 1.0, 1.0) == -math.inf


def test_the_levels_of_snvrg_are_renewed_as_the_proof_counts() -> None:
    """Level r − 1 is renewed every Π_{l≥r} T_l steps, and B_r = 6^{K−r+1}(Π_{l≥r} T_l)² makes the sum at most 1/5."""
    n = 10**9
    loops, plan = NestedLoops.loops(n), NestedLoops()(Facts(1, n, 1.0, 1.0))
    spread = sum(6.0 ** -(len(loops) - r) for r in range(len(loops)))
    assert spread <= 0.2
    for share, proved in ((0.9, False), (1 / 6, True)):
        assert (moving_anchor.nested_gain(plan, share, n, 1.0, 1.0) > 0) is proved


def test_gradient_descent_and_spider_have_their_closed_forms() -> None:
    setting = Setting(10_000, 1e-3, 2.0, 5.0, 3.0)
    assert guarantee(make("gd"), setting).epochs == math.ceil(2 * 2.0 * 3.0 / 1e-3)
    steps = 4 * 2.0 * 3.0 / 1e-3  # 2Δ/(ηε) at η = 1/(2L)
    for name in ("spider", "page"):
        assert guarantee(make(name), setting).epochs == math.ceil(steps / 101)
    sgd = guarantee(make("sgd", b=5000), setting)
    noise = 5.0 / 5000 * 5000 / 9999
    assert sgd.calls == pytest.approx(5000 * 3.0 / ((1 / 6 - 1 / 36) * 1e-3 - noise / 36))


@pytest.mark.parametrize(
    ("name", "options"), [("svrg", {}), ("scsg", {}), ("batching-svrg", {}), ("weighted-svrg", {})]
)
def test_the_number_of_epochs_is_the_first_at_which_the_gains_reach_the_gap(name: str, options: dict[str, int]) -> None:
    setting, method = Setting(300, 0.05, 1.0, 0.5, 1.0), make(name, **options)
    found, gained, calls = guarantee(method, setting), 0.0, 0.0
    for planned in epochs(method, setting):
        gained += epoch_gain(method, planned, setting, setting.eps)
        calls += planned.calls
        if gained >= setting.gap * (1 - 1e-9):
            break
    assert found.proved
    assert found.epochs == planned.epoch
    assert found.calls == pytest.approx(calls)


def test_the_floor_is_the_least_target_that_is_reached() -> None:
    setting = Setting(60_000, 1e-2, 10.0, 100.0, 2.3)
    found = guarantee(make("sgd"), setting)
    assert found.proved
    assert found.calls == math.inf
    exact = 100 / 64 * (60_000 - 64) / 59_999 / 5  # (γ/(2−γ))·S*_b at γ = 1/3
    assert found.floor == pytest.approx(exact, rel=1e-6)
    for share, reached in ((0.99, False), (1.01, True)):
        own = Setting(60_000, share * exact, 10.0, 100.0, 2.3)
        assert math.isfinite(guarantee(make("sgd"), own).calls) is reached


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("adam", {}, "no multiple of v"),
        ("saga", {}, "non-convex"),
        ("momentum", {}, "m begins at 0"),
        ("vcsg", {"eps": 1.0}, "depend on the mini-batch"),
        ("vcsg", {"eps": 1.0, "comparison": "never"}, "first regime are too long"),
        ("biased-svrg", {}, "too long"),
        ("growing-svrg", {}, "too long"),
        ("paper-sgd", {}, "not within 10,000 epochs"),
    ],
)
def test_where_there_is_no_number_the_reason_is_said(name: str, options: dict[str, object], words: str) -> None:
    found = guarantee(make(name, **options), Setting(60_000, 1e-2 if name == "paper-sgd" else 1.0, 10.0, 100.0, 2.3))
    assert found.calls == math.inf
    assert words in found.reason


def test_vcsg_without_its_test_is_proved_where_the_anchors_are_small() -> None:
    """The first regime with (½, −½, ½) and K = 1, so B = S*/ε: the proof goes through for B = 10, not for 1000."""
    options = {"comparison": "never", "paper": True, "first_epoch": False, "B_min": 2, "sigma": 1.0, "K": 1.0}
    for eps, proved in ((0.1, True), (0.001, False)):
        assert guarantee(make("vcsg", eps=eps, **options), Setting(10**6, eps, 1.0, 1.0, 1.0)).proved is proved


def test_every_registered_method_has_a_guarantee_or_a_reason() -> None:
    setting = Setting(500, 0.1, 1.0, 1.0, 1.0)
    for name, method in vcsg.methods().items():
        found = guarantee(method, setting)
        assert math.isfinite(found.calls) is (found.reason == ""), name
