"""Learning-rate schedulers of torch work as they are; the question is when to call scheduler.step().

An epoch of these methods is an anchor and its inner steps, of a length that changes, so neither "every epoch" nor
"every step" is a fixed amount of work. Here the scheduler is stepped once per pass: whenever the optimizer has
evaluated another n gradients. (`optimizer.epoch` counts anchors: to step once per anchor, watch that instead.) A
scheduler changes `lr`, which multiplies the step size; L, which the optimizer may double when it diverges, is left
alone.
"""

import torch
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import CosineAnnealingLR

import vcsg
from vcsg.workloads import lenet_300_100, mnist_mini

PASSES = 6

data = mnist_mini()
torch.manual_seed(0)
model = lenet_300_100()
optimizer = vcsg.SVRG(model.parameters(), n=len(data.train[0]), b=64, lr=5.8)
scheduler = CosineAnnealingLR(optimizer, T_max=PASSES)

for images, labels in optimizer.batches(data.train, passes=PASSES):

    def closure():
        optimizer.zero_grad()
        loss = cross_entropy(model(images), labels)
        loss.backward()
        return loss

    loss = optimizer.step(closure).item()
    while scheduler.last_epoch < int(optimizer.passes):  # what torch calls an epoch is a pass here
        scheduler.step()
        lr = scheduler.get_last_lr()[0]
        print(f"pass {scheduler.last_epoch}: lr = {lr:.3f}, loss of the last batch {loss:.3f}")

with torch.no_grad():
    error = (model(data.test[0]).argmax(1) != data.test[1]).float().mean()
print(f"test error {error:.1%}")
