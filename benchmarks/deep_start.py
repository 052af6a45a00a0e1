"""Which step fits VCSG on a deep net, where L at the start fits nothing that follows? docs/engineering/defaults.md.

    python -m benchmarks.deep_start [--passes 6] [--seeds 2] [--images 30]

VGG-16 without BatchNorm at an eighth of its width, on the first images of each class of Tiny ImageNet's first archive,
shrunk to 32 × 32 (VCSG_DATA names the folder). A line has the L of the first and of the last epoch, the training loss
and the top-5 test error in % at the end, each for every seed. A guess has log 200 = 5.298 and 97.5 %.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from benchmarks.counting import table
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, cross_entropy

import vcsg
from vcsg.study.compare import parse_seeds
from vcsg.workloads import DataError, tiny_imagenet
from vcsg.workloads.folders import data_folders
from vcsg.workloads.models import VGG_16, with_he_weights

Samples = tuple[Tensor, Tensor]
WIDTH = 8
SETTINGS: dict[str, dict[str, Any]] = {
    "defaults: L at the start": {},
    "L measured again": {"measure_again": True},
    "the adaptive step": {"step": "adaptive"},
    "the orthogonal step": {"step": "orthogonal"},
}


def images(each: int) -> tuple[Samples, Samples]:
    """The first images of every class for training, and 4,000 for testing."""
    files = [path for folder in data_folders() for path in tiny_imagenet.find(Path(folder) / "tiny-imagenet")]
    if not files:
        raise DataError("Tiny ImageNet is not there: set VCSG_DATA to the folder that has tiny-imagenet/")
    arrays = tiny_imagenet.decode(files[:1])
    labels = torch.from_numpy(arrays["train_labels"]).long()
    rank = torch.cat([torch.arange(int(count)) for count in labels.bincount()])  # they come class by class
    kept = rank < each
    return (_shrunk(torch.from_numpy(arrays["train_images"])[kept]), labels[kept]), (
        _shrunk(torch.from_numpy(arrays["test_images"][:4000])),
        torch.from_numpy(arrays["test_labels"][:4000]).long(),
    )


def _shrunk(pixels: Tensor) -> Tensor:
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (tiny_imagenet.MEAN, tiny_imagenet.STD))
    return (avg_pool2d(pixels.float(), 2) / 255 - mean) / std


def narrow_vgg(seed: int) -> nn.Sequential:
    """VGG-16 for 32 × 32 pixels and 200 classes, an eighth as wide, with the initial weights of the whole one."""
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    before = 3
    for stage in VGG_16:
        for channels in stage:
            layers += [nn.Conv2d(before, channels // WIDTH, 3, padding=1), nn.ReLU()]
            before = channels // WIDTH
        layers.append(nn.MaxPool2d(2))
    units = 512 // WIDTH
    layers += [nn.Flatten(), nn.Linear(before, units), nn.ReLU(), nn.Linear(units, units), nn.ReLU()]
    return with_he_weights(nn.Sequential(*layers, nn.Linear(units, 200)))


def outputs(model: nn.Module, inputs: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.cat([model(part) for part in inputs.split(500)])


def measure(train: Samples, test: Samples, options: dict[str, Any], seed: int, passes: float) -> list[str]:
    model = narrow_vgg(seed)
    result = vcsg.fit(model, cross_entropy, train, "vcsg", passes=passes, seed=seed, every=passes, **options)
    smoothness = [record.L for record in (result.records[0], result.records[-1])]
    shown = "–" if "step" in options else " → ".join(f"{L:.3g}" for L in smoothness)
    loss = float(cross_entropy(outputs(model, train[0]), train[1]))
    missed = (outputs(model, test[0]).topk(5, 1).indices != test[1][:, None]).all(1)
    return [shown, f"{loss:.3f}", f"{100 * float(missed.float().mean()):.1f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passes", type=float, default=6.0)
    parser.add_argument("--seeds", default="2", help="how many, or which, such as 3,4")
    parser.add_argument("--images", type=int, default=30, help="images of each class, at most 85")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    train, test = images(asked.images)
    rows = [["VCSG with", "L", "training loss", "top-5 error, %"]]
    for name, options in SETTINGS.items():
        found = [measure(train, test, options, seed, asked.passes) for seed in parse_seeds(asked.seeds)]
        rows.append([name, *(", ".join(dict.fromkeys(column)) for column in zip(*found, strict=True))])
        print(" | ".join(rows[-1]), flush=True)
    print(f"\nn = {len(train[0]):,}, {asked.passes:g} passes, seeds {asked.seeds}\n\n{table(rows)}")


if __name__ == "__main__":
    main()
