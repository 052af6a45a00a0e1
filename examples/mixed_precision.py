"""Mixed precision: bfloat16 autocast inside the closure, for the forward pass alone; parameters stay in float32.

A GradScaler is not needed with bfloat16 and not possible here: it changes its scale between steps, and the anchor's
gradients would have another scale than those of the step.
"""

import torch
from torch.nn.functional import cross_entropy

import vcsg
from vcsg.workloads import lenet_300_100, mnist_mini

data = mnist_mini()
for half in (False, True):
    torch.manual_seed(0)
    model = lenet_300_100()
    optimizer = vcsg.SVRG(model.parameters(), n=len(data.train[0]), b=64, lr=2.9)
    for images, labels in optimizer.batches(data.train, passes=3):

        def closure():
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=half):
                loss = cross_entropy(model(images), labels)
            loss.backward()
            return loss

        optimizer.step(closure)

    with torch.no_grad():
        loss = cross_entropy(model(data.train[0]), data.train[1])
        error = (model(data.test[0]).argmax(1) != data.test[1]).float().mean()
    name = "bfloat16 autocast" if half else "float32"
    print(f"{name:<17} training loss {loss:.4f}, test error {error:.1%}")
