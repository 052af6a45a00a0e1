"""Your own loop over an ordinary DataLoader: with a closure for VCSG, and as a drop-in for torch.optim without one."""

import torch
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import vcsg
from vcsg.workloads import lenet_300_100, mnist_mini

data = mnist_mini()
train = TensorDataset(*data.train)
torch.manual_seed(0)
loader = DataLoader(train, batch_size=64, shuffle=True)  # its last batch has 16 samples


def error(model):
    with torch.no_grad():
        return (model(data.test[0]).argmax(1) != data.test[1]).float().mean()


# Some whole batches form an anchor, the following are inner steps. `loop` tells the optimizer how many samples a batch
# has; a plain `for images, labels in loader` does as well where the closure calls a model on the whole batch.
model = lenet_300_100()
optimizer = vcsg.VCSG(model.parameters(), n=len(train), batch_size=64)
for _ in range(3):
    for images, labels in optimizer.loop(loader):

        def closure():
            optimizer.zero_grad()
            loss = cross_entropy(model(images), labels)
            loss.backward()
            return loss

        optimizer.step(closure)
print(f"vcsg: {optimizer.passes:.2f} passes counted in 3 of the loop, test error {error(model):.1%}")

# A method without a second point needs no closure.
model = lenet_300_100()
auto = vcsg.Auto(model.parameters(), n=len(train), batch_size=64)
for _ in range(3):
    for images, labels in loader:
        auto.zero_grad()
        cross_entropy(model(images), labels).backward()
        auto.step()
auto.load_output()  # the average of the points
print(f"auto: {auto.passes:.2f} passes, test error {error(model):.1%}")
