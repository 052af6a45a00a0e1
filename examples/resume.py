"""Save a run, in the middle of an epoch, and continue it as if nothing had happened, bit by bit."""

import tempfile
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

import vcsg
from vcsg.workloads import lenet_300_100, mnist_mini

data = mnist_mini()


def make(seed):
    """A model and an optimizer with the options of the run."""
    torch.manual_seed(seed)
    model = lenet_300_100()
    return model, vcsg.VCSG(model.parameters(), n=len(data.train[0]), b_min=16)


def train(model, optimizer, passes):
    """Go on until that many passes are done, counted from the very start."""
    for images, labels in optimizer.batches(data.train, passes=passes):

        def closure():
            optimizer.zero_grad()
            loss = cross_entropy(model(images), labels)
            loss.backward()
            return loss

        optimizer.step(closure)


model, optimizer = make(seed=0)
train(model, optimizer, passes=2.5)
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "checkpoint.pt"
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    print(f"saved at {optimizer.passes:.3f} passes, epoch {optimizer.epoch}: {path.stat().st_size / 2**20:.1f} MiB")
    checkpoint = torch.load(path, weights_only=True)
train(model, optimizer, passes=4)

resumed, another = make(seed=1)  # other weights, which the checkpoint replaces
resumed.load_state_dict(checkpoint["model"])
another.load_state_dict(checkpoint["optimizer"])
train(resumed, another, passes=4)

for a, b in zip(model.parameters(), resumed.parameters(), strict=True):
    assert torch.equal(a, b)
assert optimizer.ifo == another.ifo
print(f"after {another.passes:.3f} passes, epoch {another.epoch}: the resumed run is identical")
