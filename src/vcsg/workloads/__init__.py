"""What the methods are run on: data sets, models, and analytic finite sums with known L."""

from vcsg.workloads.mnist_mini import DataSet, mnist_mini
from vcsg.workloads.models import lenet_300_100
from vcsg.workloads.problems import Problem, least_squares, nonconvex_logistic

__all__ = ["DataSet", "Problem", "least_squares", "lenet_300_100", "mnist_mini", "nonconvex_logistic"]
