"""The workloads that methods are run on: data sets, models, and analytic finite sums with known L.

`load` returns a workload by name, such as "cifar10/lenet-5"; docs/workloads.md lists all, and shows how to add one.

Who lives here: the readers, caches and downloads of data sets, the models, the problems, and the registries of all
three. They may touch `vcsg.files` and `vcsg.names` alone: no method, optimizer or study is known here.
"""

from vcsg.workloads.claims import Claim
from vcsg.workloads.dataset import DataError, DataSet
from vcsg.workloads.datasets import data_sets, fetch, load_data_set, register_data_set, samples_on_disk, where
from vcsg.workloads.download import Download
from vcsg.workloads.libsvm import CSR, read_libsvm
from vcsg.workloads.mnist_mini import mnist_mini
from vcsg.workloads.models import lenet_5, lenet_300_100, register_model, vgg_16
from vcsg.workloads.problems import (
    AnalyticProblem,
    Family,
    least_squares,
    least_squares_on,
    nonconvex_logistic,
    nonconvex_logistic_on,
    register_problem,
    robust_regression,
    robust_regression_on,
)
from vcsg.workloads.source import Source
from vcsg.workloads.workload import Listing, Workload, load, names, register_workload

__all__ = [
    "CSR",
    "AnalyticProblem",
    "Claim",
    "DataError",
    "DataSet",
    "Download",
    "Family",
    "Listing",
    "Source",
    "Workload",
    "data_sets",
    "fetch",
    "least_squares",
    "least_squares_on",
    "lenet_5",
    "lenet_300_100",
    "load",
    "load_data_set",
    "mnist_mini",
    "names",
    "nonconvex_logistic",
    "nonconvex_logistic_on",
    "read_libsvm",
    "register_data_set",
    "register_model",
    "register_problem",
    "register_workload",
    "robust_regression",
    "robust_regression_on",
    "samples_on_disk",
    "vgg_16",
    "where",
]
