"""Small models of many kinds with their data, for `benchmarks.kept_back`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pydoc_data.topics import topics
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.datasets import load_diabetes, load_digits, load_iris, make_friedman1
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss

from vcsg.workloads import load_data_set, mnist_mini

Pair = tuple[Tensor, Tensor]
Loss = Callable[[Tensor, Tensor], Tensor]


class Task(NamedTuple):
    """A model with its data; the error is what is measured on the test samples."""

    model: Callable[[], nn.Module]
    loss: Loss
    train: Pair
    test: Pair
    error: Loss
    passes: float


# --- models ---------------------------------------------------------------------------------------


class Residual(nn.Module):
    """x + f(x), for a part of a net."""

    def __init__(self, *parts: nn.Module) -> None:
        super().__init__()
        self.inner = nn.Sequential(*parts)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = x + self.inner(x)
        return found


class Attention(nn.Module):
    """Self-attention of four heads."""

    def __init__(self, width: int, causal: bool) -> None:
        super().__init__()
        self.into, self.out, self.causal = nn.Linear(width, 3 * width), nn.Linear(width, width), causal

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (4, -1)).transpose(1, 2) for t in self.into(x).chunk(3, -1))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        found: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return found


class Transformer(nn.Module):
    """Embeddings of tokens and places, two layers, and a head that is tied to the embedding, or of its own."""

    def __init__(self, tokens: int, length: int, width: int, classes: int | None = None) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(tokens, width), nn.Parameter(0.02 * torch.randn(length, width))
        nn.init.normal_(self.tokens.weight, std=0.02)
        causal = classes is None
        self.layers = nn.Sequential(*(part for _ in range(2) for part in self._layer(width, causal)))
        self.norm = nn.LayerNorm(width)
        self.head = None if classes is None else nn.Linear(width, classes)

    @staticmethod
    def _layer(width: int, causal: bool) -> Iterator[nn.Module]:
        yield Residual(nn.LayerNorm(width), Attention(width, causal))
        yield Residual(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.norm(self.layers(self.tokens(tokens) + self.places))
        found: Tensor = x @ self.tokens.weight.T if self.head is None else self.head(x.mean(1))
        return found


class Recurrent(nn.Module):
    """A GRU whose last state is read."""

    def __init__(self, inputs: int, width: int, outputs: int) -> None:
        super().__init__()
        self.cells, self.head = nn.GRU(inputs, width, batch_first=True), nn.Linear(width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(self.cells(x)[0][:, -1])
        return found


class Recommender(nn.Module):
    """Embeddings of a user and an item, and a small net over both."""

    def __init__(self, users: int, items: int, width: int = 16) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(users, width), nn.Embedding(items, width)
        self.net = nn.Sequential(nn.Linear(2 * width, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, pairs: Tensor) -> Tensor:
        both = torch.cat((self.users(pairs[:, 0]), self.items(pairs[:, 1])), 1)
        found: Tensor = self.net(both).squeeze(1)
        return found


class Letters(nn.Module):
    """An LSTM over letters, which guesses the next one."""

    def __init__(self, letters: int, width: int) -> None:
        super().__init__()
        self.letters, self.head = nn.Embedding(letters, 32), nn.Linear(width, letters)
        self.cells = nn.LSTM(32, width, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(self.cells(self.letters(x))[0])
        return found


def post_norm() -> nn.Module:
    """Torch's own transformer layers, with dropout, over the eight rows of a digit."""
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
    inner = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
    return nn.Sequential(nn.Linear(8, 32), inner, nn.Flatten(), nn.Linear(256, 10))


def conv_bn(ins: int, outs: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(ins, outs, 3, stride, 1, bias=False), nn.BatchNorm2d(outs), nn.ReLU())


def pooled(*parts: nn.Module, width: int, classes: int = 10) -> nn.Sequential:
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))


def perceptron(*widths: int, between: Callable[[int], nn.Module] | None = None) -> nn.Sequential:
    parts: list[nn.Module] = []
    for ins, outs in pairwise(widths):
        parts += [nn.Linear(ins, outs), *([between(outs)] if between else []), nn.ReLU()]
    return nn.Sequential(*parts[: -2 if between else -1])


def with_frozen_layers() -> nn.Module:
    """A net of which the first convolution stays as it is drawn."""
    net = pooled(nn.Unflatten(1, (1, 8)), conv_bn(1, 32), conv_bn(32, 32), width=32)
    net[1].requires_grad_(False)
    return net


# --- data -----------------------------------------------------------------------------------------


def cut(x: Any, y: Any, test: int, dtype: torch.dtype | None = torch.float32) -> tuple[Pair, Pair]:
    """Samples in a random order, cut into training and test samples."""
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    x, y = torch.as_tensor(x), torch.as_tensor(y)
    x, y = (x if dtype is None else x.to(dtype))[order], y[order]
    return (x[test:], y[test:]), (x[:test], y[:test])


def digits(dtype: torch.dtype = torch.float32) -> tuple[Pair, Pair]:
    x, y = load_digits(return_X_y=True)
    return cut(x.reshape(-1, 8, 8) / 16, y, 400, dtype)


def cifar10() -> tuple[Pair, Pair]:
    found = load_data_set("cifar10")
    return (found.train[0][:10_000], found.train[1][:10_000]), (found.test[0][:2_000], found.test[1][:2_000])


def text(length: int = 48) -> tuple[Pair, Pair, int]:
    """Windows of the help texts of Python, each with its next characters; the last tenth is for the test."""
    whole = "\n".join(topics[name] for name in sorted(topics))[:100_000]
    letters = {c: k for k, c in enumerate(sorted(set(whole)))}
    codes = torch.tensor([letters[c] for c in whole])
    windows = codes.unfold(0, length + 1, length)
    x, y = windows[:, :-1].contiguous(), windows[:, 1:].contiguous()
    return (x[:-200], y[:-200]), (x[-200:], y[-200:]), len(letters)


def pointers(n: int = 4000, length: int = 24) -> tuple[Pair, Pair]:
    """Sequences of 8 tokens; the class is the token after the first 0, if any, and else 0."""
    x = torch.randint(0, 8, (n, length), generator=torch.Generator().manual_seed(1))
    first = (x == 0).float().argmax(1)
    y = torch.where(
        (x == 0).any(1) & (first < length - 1), x.gather(1, (first + 1).clamp(max=length - 1)[:, None])[:, 0], 0
    )
    return cut(x, y, 1000, None)


def houses(scale: float, offset: float) -> tuple[Pair, Pair]:
    x, y = make_friedman1(6000, 10, noise=1.0, random_state=0)
    return cut(x, torch.tensor(scale * y + offset, dtype=torch.float32)[:, None], 1000)


def drawn_prices(scale: float = 1.0, offset: float = 0.0, n: int = 6000) -> tuple[Pair, Pair]:
    """Eight standardised inputs, one of them skewed, and prices from 0.1 to 5 that are cut off at both ends."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(n, 8))
    x[:, 3] = np.exp(x[:, 3])
    waves, sizes = np.sin(2 * x[:, 1]) * x[:, 2], np.log1p(x[:, 3]) * x[:, 4]
    y = 2 + 0.8 * x[:, 0] + 0.5 * waves + 0.3 * sizes + 0.4 * np.abs(x[:, 5]) + 0.3 * rng.normal(size=n)
    targets = scale * np.clip(y, 0.1, 5) + offset
    return cut((x - x.mean(0)) / x.std(0), torch.tensor(targets, dtype=torch.float32)[:, None], 1000)


def diabetes() -> tuple[Pair, Pair]:
    x, y = load_diabetes(return_X_y=True)
    return cut(x / x.std(0), torch.tensor(y, dtype=torch.float32)[:, None], 100)


def phishing() -> tuple[Pair, Pair]:
    x, y = load_data_set("phishing").train
    return cut(x, y, 2000)


def some_mnist(count: int) -> tuple[Pair, Pair]:
    images = mnist_mini()
    return (images.train[0][:count], images.train[1][:count]), images.test


def ratings(users: int = 300, items: int = 100, n: int = 24_000) -> tuple[Pair, Pair]:
    rng = np.random.default_rng(0)
    chance = 1 / np.arange(1, items + 1) ** 0.8
    u, i = rng.integers(0, users, n), rng.choice(items, n, p=chance / chance.sum())
    taste, kind = rng.normal(size=(users, 4)), rng.normal(size=(items, 4))
    y = rng.random(n) < 1 / (1 + np.exp(-2 * (taste[u] * kind[i]).sum(1)))
    return cut(np.stack((u, i), 1), y.astype(np.float32), 4000, None)


def noisy_mnist(share: float = 0.3) -> tuple[Pair, Pair]:
    """mnist-mini whose training labels are drawn anew for some samples."""
    images = mnist_mini()
    generator = torch.Generator().manual_seed(0)
    x, y = images.train[0][:5000], images.train[1][:5000].clone()
    wrong = torch.rand(len(y), generator=generator) < share
    y[wrong] = torch.randint(0, 10, (int(wrong.sum()),), generator=generator)
    return (x, y), images.test


def rare_classes() -> tuple[Pair, Pair]:
    """mnist-mini with every sample of the digits 0 to 4, and a twentieth of the others."""
    images = mnist_mini()
    x, y = images.train
    kept = (y < 5) | (torch.arange(len(y)) % 20 == 0)
    return (x[kept], y[kept]), images.test


# --- tasks ----------------------------------------------------------------------------------------


def wrong(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.argmax(1) != targets).double().mean()


def next_token(outputs: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(outputs.flatten(0, 1), targets.flatten())


def balanced(outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean over the classes of the share of wrong predictions."""
    missed = (outputs.argmax(1) != targets).double()
    return torch.stack([missed[targets == k].mean() for k in targets.unique()]).mean()


def bn_task() -> Task:
    def net() -> nn.Module:
        return pooled(conv_bn(3, 16, 2), conv_bn(16, 32, 2), conv_bn(32, 64, 2), width=64)

    return Task(net, cross_entropy, *cifar10(), wrong, 6)


def depthwise_task() -> Task:
    def block(ins: int, outs: int) -> nn.Module:
        deep = nn.Conv2d(ins, ins, 3, 2, 1, groups=ins, bias=False), nn.BatchNorm2d(ins), nn.ReLU()
        return nn.Sequential(*deep, nn.Conv2d(ins, outs, 1, bias=False), nn.BatchNorm2d(outs), nn.ReLU())

    def net() -> nn.Module:
        return pooled(conv_bn(1, 16, 2), block(16, 32), block(32, 64), width=64)

    images = mnist_mini()
    return Task(net, cross_entropy, (images.train[0][:4000], images.train[1][:4000]), images.test, wrong, 8)


def table_task() -> Task:
    """The first rows of a9a, with a deep residual perceptron."""

    def net() -> nn.Module:
        blocks = [Residual(nn.LayerNorm(32), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32)) for _ in range(6)]
        return nn.Sequential(nn.Linear(123, 32), *blocks, nn.LayerNorm(32), nn.Linear(32, 2))

    found = load_data_set("a9a")
    (x, y), (x_test, y_test) = found.train, found.test
    train, test = (x[:6000].float(), y[:6000]), (x_test[:3000].float(), y_test[:3000])
    return Task(net, cross_entropy, train, test, cross_entropy, 6)


def residual_task() -> Task:
    def block() -> nn.Module:
        return Residual(conv_bn(24, 24), nn.Conv2d(24, 24, 3, 1, 1, bias=False), nn.BatchNorm2d(24))

    def net() -> nn.Module:
        return pooled(nn.Unflatten(1, (1, 8)), conv_bn(1, 24), block(), block(), width=24)

    return Task(net, cross_entropy, *digits(), wrong, 10)


def text_task() -> Task:
    train, test, letters = text()
    return Task(lambda: Transformer(letters, 48, 64), next_token, train, test, next_token, 8)


def letters_task() -> Task:
    train, test, letters = text()
    return Task(lambda: Letters(letters, 96), next_token, train, test, next_token, 8)


def encoder_task() -> Task:
    return Task(lambda: Transformer(8, 24, 32, 8), cross_entropy, *pointers(), wrong, 12)


def recurrent_task() -> Task:
    return Task(lambda: Recurrent(8, 48, 10), cross_entropy, *digits(), wrong, 20)


def autoencoder_task() -> Task:
    images = mnist_mini()
    train, test = images.train[0][:5000].flatten(1), images.test[0].flatten(1)
    return Task(lambda: perceptron(784, 128, 16, 128, 784), mse_loss, (train, train), (test, test), mse_loss, 10)


def group_norm_task() -> Task:
    def net() -> nn.Module:
        first, second = nn.Conv2d(1, 24, 3, 1, 1), nn.Conv2d(24, 48, 3, 2, 1)
        norms = nn.GroupNorm(4, 24), nn.GroupNorm(4, 48)
        return pooled(
            nn.Unflatten(1, (1, 8)), first, norms[0], nn.ReLU(), second, norms[1], nn.ReLU(), width=48
        ).double()

    return Task(net, cross_entropy, *digits(torch.float64), wrong, 10)


def prices_task(scale: float = 1.0, offset: float = 0.0) -> Task:
    return Task(lambda: perceptron(8, 64, 32, 1), mse_loss, *drawn_prices(scale, offset), mse_loss, 15)


def conv_task() -> Task:
    def net() -> nn.Module:
        first, second = nn.Conv2d(1, 8, 5, 2), nn.Conv2d(8, 16, 3, 2)
        return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Flatten(), nn.Linear(400, 10))

    return Task(net, cross_entropy, *some_mnist(6000), wrong, 6)


def deep_conv_task() -> Task:
    def net() -> nn.Module:
        parts = [part for _ in range(5) for part in (nn.Conv2d(16, 16, 3, 1, 1), nn.ReLU())]
        last = nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(256, 10)
        return nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), *parts, *last)

    return Task(net, cross_entropy, *some_mnist(3000), wrong, 6)


def deep_task() -> Task:
    def net() -> nn.Module:
        return nn.Sequential(nn.AvgPool2d(2), nn.Flatten(), *perceptron(196, *[64] * 9, 10))

    return Task(net, cross_entropy, *some_mnist(5000), wrong, 6)


def iris_task() -> Task:
    x, y = load_iris(return_X_y=True)
    return Task(lambda: perceptron(4, 16, 3), cross_entropy, *cut(x, y, 50), cross_entropy, 60)


def linear_task() -> Task:
    (x, y), (x_test, y_test) = digits()
    return Task(
        lambda: nn.Linear(64, 10), cross_entropy, (x.flatten(1), y), (x_test.flatten(1), y_test), cross_entropy, 30
    )


TASKS: dict[str, Callable[[], Task]] = {
    "conv, BatchNorm (CIFAR-10, 10,000)": bn_task,
    "residual, BatchNorm (digits)": residual_task,
    "conv, GroupNorm, float64 (digits)": group_norm_task,
    "frozen first layer, BatchNorm (digits)": lambda: Task(with_frozen_layers, cross_entropy, *digits(), wrong, 10),
    "transformer, tied head (text)": text_task,
    "transformer, encoder (pointers)": encoder_task,
    "GRU (rows of digits)": recurrent_task,
    "autoencoder (mnist-mini)": autoencoder_task,
    "regression (Friedman)": lambda: Task(
        lambda: perceptron(10, 64, 64, 1), mse_loss, *houses(0.2, -3), mse_loss, 20
    ),
    "regression, targets of 300,000 (Friedman)": lambda: Task(
        lambda: perceptron(10, 64, 64, 1), mse_loss, *houses(20_000, 0), mse_loss, 20
    ),
    "embeddings (ratings)": lambda: Task(
        lambda: Recommender(300, 100), binary_cross_entropy_with_logits, *ratings(), binary_cross_entropy_with_logits, 8
    ),
    "linear (digits)": linear_task,
    "n = 100 (iris)": iris_task,
    "30 % wrong labels, dropout (mnist-mini)": lambda: Task(
        lambda: nn.Sequential(nn.Flatten(), *perceptron(784, 128, 64, 10, between=lambda _: nn.Dropout(0.2))),
        cross_entropy, *noisy_mnist(), wrong, 12,
    ),
    "LSTM (text)": letters_task,
    "depthwise, BatchNorm (mnist-mini)": depthwise_task,
    "post-norm transformer, dropout (digits)": lambda: Task(post_norm, cross_entropy, *digits(), wrong, 12),
    "deep residual perceptron, LayerNorm (a9a)": table_task,
    "prices, 0.1 to 5 (drawn)": prices_task,
    "prices in dollars (drawn)": lambda: prices_task(1e5),
    "mean of 2000 (drawn)": lambda: prices_task(10, 1980),
    "targets of 0.001 (drawn)": lambda: prices_task(1e-3),
    "regression, n = 342 (diabetes)": lambda: Task(
        lambda: perceptron(10, 32, 1), mse_loss, *diabetes(), mse_loss, 40
    ),
    "perceptron (phishing)": lambda: Task(
        lambda: perceptron(68, 64, 32, 2), cross_entropy, *phishing(), cross_entropy, 8
    ),
    "linear (phishing)": lambda: Task(lambda: nn.Linear(68, 2), cross_entropy, *phishing(), cross_entropy, 15),
    "linear (mnist-mini)": lambda: Task(
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 10)), cross_entropy, *some_mnist(6000), cross_entropy, 10
    ),
    "conv (mnist-mini)": conv_task,
    "deep conv (mnist-mini)": deep_conv_task,
    "deep perceptron (mnist-mini)": deep_task,
    "rare classes (mnist-mini)": lambda: Task(
        lambda: nn.Sequential(nn.Flatten(), *perceptron(784, 100, 10)), cross_entropy, *rare_classes(), balanced, 12
    ),
}  # fmt: skip
