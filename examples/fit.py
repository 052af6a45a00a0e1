"""Three lines: fit, print, plot. Two methods on the same data, by name and options; `--plot FILE` draws the first."""

import argparse

import torch
from torch.nn.functional import cross_entropy

import vcsg
from vcsg.workloads import lenet_300_100, mnist_mini

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--passes", type=float, default=3, help="gradients to spend, in units of the number of samples")
parser.add_argument("--plot", metavar="FILE", help="where to save the figure of the first run")
arguments = parser.parse_args()

data = mnist_mini()
runs = []
for method, options in (("vcsg", {"b_min": 16}), ("svrg", {"b": 64, "lr": 2.9})):
    torch.manual_seed(0)
    model = lenet_300_100()
    runs.append(vcsg.fit(model, cross_entropy, data.train, method, passes=arguments.passes, test=data.test, **options))
    print(runs[-1], end="\n\n")
if arguments.plot:
    runs[0].plot(arguments.plot)
