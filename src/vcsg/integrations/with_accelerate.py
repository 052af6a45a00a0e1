"""`prepare` for Accelerate: as `accelerator.prepare`, but that what would go wrong without a word is refused."""

from __future__ import annotations

from typing import Any

from accelerate import Accelerator
from torch.utils.data import DataLoader

from vcsg.calling_frameworks import check_accumulation
from vcsg.optimizer import FiniteSumOptimizer
from vcsg.run.feeding import PhaseSampler


def prepare(accelerator: Accelerator, *objects: Any) -> Any:
    """`accelerator.prepare(*objects)`; n and the batch size of an optimizer made without them come from the loader.

    A loader of other sizes than an optimizer was made for is refused, and so are gradients that Accelerate would
    accumulate or scale: it skips whole steps then, or hands over gradients of another scale than the anchor's. On
    several ranks the batch size is that of each, unless `split_batches` shares one among them.

    Example:
        accelerator = Accelerator()
        model, optimizer, loader = prepare(accelerator, model, vcsg.VCSG(model.parameters()), loader)
    """
    check_accumulation(accelerator.gradient_accumulation_steps)
    if accelerator.scaler is not None:
        raise ValueError(
            f"mixed_precision = {accelerator.mixed_precision!r}: its GradScaler changes the scale of gradients between "
            "steps, and an anchor has those of another one. Take mixed_precision='bf16'"
        )
    loaders = [own for own in objects if isinstance(own, DataLoader)]
    ordinary = [own for own in loaders if not isinstance(own.batch_sampler, PhaseSampler)]
    for optimizer in (own for own in objects if isinstance(own, FiniteSumOptimizer)):
        for loader in ordinary[:1]:
            optimizer.expect(loader)
    return accelerator.prepare(*objects)
