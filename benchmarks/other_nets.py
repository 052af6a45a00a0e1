"""Networks with norm layers for `vcsg compare`, beside the published ones that have none.

    vcsg compare cifar10/residual-net --import benchmarks/other_nets.py --device cuda --budget 8passes \
        --methods default:auto,tuned:sgd-momentum,tuned:adamw --search-b 64,256
    vcsg compare cifar10/patch-transformer --import benchmarks/other_nets.py …
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from vcsg.extend import register_model


class Residual(nn.Module):
    """x + two convolutions with BatchNorm, where the shapes agree; else a convolution 1×1 of x in its place."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(),
            nn.Conv2d(after, after, 3, padding=1, bias=False),
            nn.BatchNorm2d(after),
        )
        same = before == after and stride == 1
        self.short = nn.Identity() if same else nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.short(x) + self.body(x))


def residual_net(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Four residual blocks with BatchNorm, of 64 to 256 channels."""
    first = nn.Conv2d(shape[0], 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU()
    blocks = Residual(64, 64, 1), Residual(64, 128, 2), Residual(128, 256, 2), Residual(256, 256, 1)
    return nn.Sequential(*first, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, classes))


class PatchTransformer(nn.Module):
    """A transformer with LayerNorm over patches of 4×4 pixels: six layers of width 192, and the mean of all places."""

    def __init__(self, shape: tuple[int, ...], classes: int, width: int = 192, depth: int = 6) -> None:
        super().__init__()
        self.patches = nn.Conv2d(shape[0], width, 4, 4)
        self.places = nn.Parameter(0.02 * torch.randn(shape[1] * shape[2] // 16, width))
        layers = (
            nn.TransformerEncoderLayer(width, 3, 2 * width, 0.0, "gelu", batch_first=True, norm_first=True)
            for _ in range(depth)
        )
        self.layers = nn.Sequential(*layers)
        self.last = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, classes))

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2) + self.places
        out: Tensor = self.last(self.layers(x).mean(1))
        return out


register_model("residual-net", residual_net)
register_model("patch-transformer", PatchTransformer)
