"""The theory of the paper and of the methods, as functions and numbers; numpy is all it needs.

    from vcsg import theory
    print(theory.plan(n=60_000, eps=1e-2, L=10, variance=100, gap=2.3))    # what each method would do, and its cost
    theory.claims["lemma"].check()                                          # a statement of the paper, checked

Who lives here: the printed formulas (`one_epoch`, `anchor_noise`, `optimal_lambda`, `rates`), runs that can be solved
exactly (`exact_moments`), what is proved of the methods as they are run (`resting_anchor`, `moving_anchor`,
`guarantees`), the statements with their verdicts (`statements` and the checks), and the plan. "l." is a line of the
paper's source.
"""

from vcsg.theory import bound_checks as bound_checks
from vcsg.theory import lemma_checks as lemma_checks
from vcsg.theory import rate_checks as rate_checks
from vcsg.theory.anchor_noise import (
    least_batch,
    mean_variance,
    printed_batch,
    printed_biased_batch,
    solved_batch,
)
from vcsg.theory.guarantees import Guarantee, guarantee
from vcsg.theory.method_plan import MethodPlan
from vcsg.theory.one_epoch import (
    FIRST,
    SECOND,
    biased_bound,
    big_theta,
    kept,
    theorem_first,
    theorem_second,
    theta,
    weighted_bound,
)
from vcsg.theory.optimal_lambda import OptimalLambda, first_regime, second_regime
from vcsg.theory.planner import RunPlan, plan
from vcsg.theory.rates import TABLE_1, Rate, claimed_rate, lower_bound, vcsg_batch
from vcsg.theory.setting import Setting
from vcsg.theory.statements import Evidence, Statement, checked

claims = checked()
"""The statements of the paper, by name: what is printed, where, its verdict and its check."""

__all__ = [
    "FIRST",
    "SECOND",
    "TABLE_1",
    "Evidence",
    "Guarantee",
    "MethodPlan",
    "OptimalLambda",
    "Rate",
    "RunPlan",
    "Setting",
    "Statement",
    "biased_bound",
    "big_theta",
    "claimed_rate",
    "claims",
    "first_regime",
    "guarantee",
    "kept",
    "least_batch",
    "lower_bound",
    "mean_variance",
    "plan",
    "printed_batch",
    "printed_biased_batch",
    "second_regime",
    "solved_batch",
    "theorem_first",
    "theorem_second",
    "theta",
    "vcsg_batch",
    "weighted_bound",
]
