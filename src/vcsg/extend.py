"""Everything that a file of your own needs to add methods, models, problems, data sets, workloads and baselines.

Each of these functions makes one thing known by name, and refuses a name that exists already unless it is told
`replace=True`. The command sees what a file registers with `vcsg compare --import my_file.py`.
"""

from vcsg.method import Method
from vcsg.method import register as register_method
from vcsg.study.adapter import Baseline
from vcsg.study.baselines import register_baseline
from vcsg.workloads import (
    DataSet,
    Family,
    Source,
    Workload,
    register_data_set,
    register_model,
    register_problem,
    register_workload,
)

__all__ = [
    "Baseline",
    "DataSet",
    "Family",
    "Method",
    "Source",
    "Workload",
    "register_baseline",
    "register_data_set",
    "register_method",
    "register_model",
    "register_problem",
    "register_workload",
]
