"""SVRG with plain, adaptive and orthogonal steps, and `fit` without a method: its default `auto` chooses by itself."""

import torch
from torch.nn.functional import cross_entropy

import vcsg
from vcsg.method import Orthogonal
from vcsg.workloads import lenet_300_100, mnist_mini

data = mnist_mini()
for step in ("plain", "adaptive", Orthogonal(rate=0.02)):
    torch.manual_seed(0)
    model = lenet_300_100()
    result = vcsg.fit(model, cross_entropy, data.train, "svrg", b=64, step=step, passes=3, test=data.test)
    print(f"svrg, {step}: test error {result.history[-1]['error']:.1%}, last epoch {result.records[-1]}")

torch.manual_seed(0)
result = vcsg.fit(lenet_300_100(), cross_entropy, data.train, passes=3, test=data.test)
print(f"auto: test error {result.history[-1]['error']:.1%}, chosen: {result.chosen}")
