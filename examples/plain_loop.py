"""The loop you write yourself: the optimizer draws the batches, you evaluate them in a closure."""

import torch
from torch.nn.functional import cross_entropy

import vcsg
from vcsg.workloads import lenet_300_100, mnist_mini

data = mnist_mini()
inputs, targets = data.train
torch.manual_seed(0)
model = lenet_300_100()

optimizer = vcsg.VCSG(model.parameters(), n=len(inputs), b_min=16, callback=print)  # prints the record of every epoch
for images, labels in optimizer.batches((inputs, targets), passes=3):

    def closure():
        optimizer.zero_grad()
        loss = cross_entropy(model(images), labels)
        loss.backward()
        return loss

    optimizer.step(closure)
optimizer.load_output()

with torch.no_grad():
    error = (model(data.test[0]).argmax(1) != data.test[1]).float().mean()
print(f"{optimizer.passes:.1f} passes, {optimizer.epoch} epochs, L = {optimizer.L:.3g}: test error {error:.1%}")
