"""Frameworks on the ranks that torchrun starts, each beside a plain loop on the same ranks.

python -m torch.distributed.run --nproc-per-node=2 … tests/framework_ranks_job.py FOLDER
"""

from __future__ import annotations

import copy
import gc
import importlib.util
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from frameworks import BATCH, EPOCHS, data, loader, loss, made, net
from nets import net_closure, vector
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler

from vcsg import FiniteSumOptimizer
from vcsg.integrations import Tracker

NAMES = ("vcsg", "auto")


def found(model: nn.Module, optimizer: FiniteSumOptimizer) -> dict[str, Any]:
    return {"weights": vector(model), "ifo": optimizer.ifo, "record": str(optimizer.record)}


class Counter:
    """What a TensorBoard writer is to a `Tracker`: it counts."""

    def __init__(self) -> None:
        self.written = 0

    def add_scalar(self, *_: Any) -> None:
        self.written += 1


def plain(name: str, rank: int, ranks: int) -> dict[str, Any]:
    """Any loop with a DistributedSampler, and a state saved and loaded on the way.

    That makes a difference: of an anchor that ranks share, a state holds the beginning, and the anchor begins anew.
    """
    counter = Counter()
    model, optimizer = (model := net()), made(model, name, callback=Tracker(counter))
    sampler = DistributedSampler(data(), ranks, rank, seed=0)
    batches = DataLoader(data(), BATCH, sampler=sampler)
    for epoch in range(EPOCHS):
        if epoch == EPOCHS // 2:
            state, optimizer = copy.deepcopy(optimizer.state_dict()), made(model, name)
            optimizer.load_state_dict(state)
        sampler.set_epoch(epoch)
        for x, y in batches:
            optimizer.step(net_closure(model, x, y))
    return {**found(model, optimizer), "written": counter.written}


def lightning(name: str, folder: Path) -> dict[str, Any]:
    """Strategy "ddp" with an ordinary shuffling loader; half of the run, a checkpoint, and the rest from there."""
    import lightning.pytorch as pl
    from lightning.pytorch.callbacks import ModelCheckpoint

    class Net(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = net()

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            return loss(self.model, batch)

        def configure_optimizers(self) -> FiniteSumOptimizer:
            return made(self.model, name)

    for epochs, path in ((EPOCHS // 2, None), (EPOCHS, folder / name / "last.ckpt")):
        module, saver = Net(), ModelCheckpoint(folder / name, save_last=True, save_top_k=0)
        trainer = pl.Trainer(
            max_epochs=epochs, strategy="ddp", devices=dist.get_world_size(), accelerator="cpu", logger=False,
            callbacks=[saver], enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder,
        )  # fmt: skip
        trainer.fit(module, DataLoader(data(), BATCH, shuffle=True), ckpt_path=path)
        result = found(module.model, trainer.optimizers[0])
    return result


def accelerated(name: str, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """A prepared model in DistributedDataParallel with a saved state, and a plain loop over the prepared batches."""
    from accelerate import Accelerator

    from vcsg.integrations import prepare

    accelerator = Accelerator(cpu=True)
    inner = net()
    model, optimizer, batches = prepare(accelerator, inner, made(inner, name), loader())

    def train(epochs: range) -> None:
        for epoch in epochs:
            batches.set_epoch(epoch)
            for batch in batches:

                def closure(batch: Any = batch) -> torch.Tensor:
                    optimizer.zero_grad()
                    value = loss(model, batch)
                    accelerator.backward(value)
                    return value

                optimizer.step(closure)

    train(range(2))
    accelerator.save_state(str(folder / f"accelerate-{name}"))
    train(range(2, 3))
    accelerator.load_state(str(folder / f"accelerate-{name}"))
    train(range(2, EPOCHS))
    result = found(inner, optimizer.optimizer)

    wanted, reference = (wanted := net()), made(wanted, name)
    for epoch in range(EPOCHS):
        if epoch == 2:
            reference.load_state_dict(copy.deepcopy(reference.state_dict()))
        batches.set_epoch(epoch)
        for x, y in batches:
            reference.step(net_closure(wanted, x, y))
    return result, found(wanted, reference)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank, ranks, folder = dist.get_rank(), dist.get_world_size(), Path(sys.argv[1])
    results: dict[str, Any] = {}
    for name in NAMES:
        wanted = plain(name, rank, ranks)
        if importlib.util.find_spec("lightning"):
            results[f"lightning {name}"] = lightning(name, folder), wanted
        if importlib.util.find_spec("accelerate"):
            results[f"accelerate {name}"] = accelerated(name, folder)
    torch.save(results, folder / f"found-{rank}.pt")
    gc.collect()  # a wrapped model that is still somewhere would keep threads of the group
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
