"""A dataset of your own, sequences of different lengths in dicts, read by two worker processes.

A dataset is whatever has `__getitem__` and `__len__`, and a batch may have any form. With `fit` an objective says what
its loss is; in a loop of your own the closure does.
The task: did more than half of the coins in a row of 5 to 20 show heads?
"""

import torch
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.nn.utils.rnn import pad_sequence

import vcsg


class Coins:
    """Sample i is drawn from its own generator, so it is the same in every process and every time."""

    def __init__(self, first, count):
        self.first, self.count = first, count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        generator = torch.Generator().manual_seed(self.first + i)
        length = int(torch.randint(5, 21, (), generator=generator))
        coins = torch.randint(2, (length,), generator=generator).float()
        return {"coins": coins, "label": float(coins.mean() > 0.5)}


def collate(samples):
    """Sequences of different lengths, padded with ½, which is neither heads nor tails."""
    coins = pad_sequence([s["coins"] for s in samples], batch_first=True, padding_value=0.5)
    return {"coins": coins, "label": torch.tensor([s["label"] for s in samples])}


class Counter(torch.nn.Module):
    """A learned function of each coin, summed over the row."""

    def __init__(self):
        super().__init__()
        self.each = torch.nn.Linear(1, 8)
        self.all = torch.nn.Linear(8, 1)

    def forward(self, coins):
        return self.all(torch.tanh(self.each(coins[..., None] - 0.5)).sum(1)).squeeze(1)


def objective(model, batch):
    return binary_cross_entropy_with_logits(model(batch["coins"]), batch["label"])


def wrong(model, batch):
    return ((model(batch["coins"]) > 0) != (batch["label"] > 0.5)).float().mean()


if __name__ == "__main__":  # where processes are spawned and not forked, the workers import this file
    torch.manual_seed(0)
    result = vcsg.fit(
        Counter(),
        None,
        Coins(0, 1000),
        "svrg",
        objective=objective,
        metrics={"wrong": wrong},
        test=Coins(1000, 500),
        collate_fn=collate,
        workers=2,
        b=32,
        passes=6,
    )
    print(result)
