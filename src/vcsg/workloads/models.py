"""The networks of the experiments, with torch's default initialisation (seed it with `torch.manual_seed`)."""

from torch import nn


def lenet_300_100(inputs: int = 784, classes: int = 10) -> nn.Sequential:
    """LeNet-300-100: fully connected, two hidden layers of 300 and 100 ReLU units.

    266,610 parameters for 784 inputs and 10 classes. Returns logits.

    References:
        LeCun, Bottou, Bengio, Haffner, "Gradient-based learning applied to document recognition", 1998.
    """
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(inputs, 300),
        nn.ReLU(),
        nn.Linear(300, 100),
        nn.ReLU(),
        nn.Linear(100, classes),
    )
