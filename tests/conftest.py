"""What all tests share."""

import os
import signal
import sys
from collections.abc import Iterator

import pytest
import torch

torch.set_num_threads(1)  # tensors are small here, and threads that wait for each other cost more than they save
os.environ.setdefault("SCIPY_ARRAY_API", "1")  # before scipy: without it scikit-learn's checks leave array types out
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton, which some parts of torch import


@pytest.fixture(autouse=True, scope="module")
def registered() -> Iterator[None]:
    """Methods that a file of tests registers are gone for the next, and so are the experiments that register some."""
    from vcsg.method import registry

    methods, modules = dict(registry._REGISTRY), set(sys.modules)
    yield
    registry._REGISTRY.clear()
    registry._REGISTRY.update(methods)
    for name in set(sys.modules) - modules:
        if name.startswith("vcsg.experiments."):
            del sys.modules[name]


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Python's handler of SIGINT, for the test and its children, also where the tests run with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
