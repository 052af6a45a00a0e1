"""For all tests: their tensors are small, and threads that wait for each other cost more than they save."""

import os

import torch

torch.set_num_threads(1)
os.environ.setdefault("SCIPY_ARRAY_API", "1")  # before scipy: without it scikit-learn's checks leave array types out
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton, which some parts of torch import
