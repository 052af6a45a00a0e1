"""What the method `auto` leaves open, chosen for a model, its data and its device: the mini-batch and the step rule.

The choice follows from counted operations and not from a stopwatch, so that the same run is chosen again, on resuming
and on another machine of the same kind.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from vcsg.method.catalogue import auto
from vcsg.method.step_rules import Adaptive, Orthogonal, StepRule, is_matrix
from vcsg.run.randomness import seeded
from vcsg.training.evaluation import untouched
from vcsg.training.sources import SampleSource

SIZES = {"cuda": 512, "cpu": 64}
"""The largest mini-batch by kind of device: one that keeps it busy, and no larger."""
BUSY, LARGEST_SIZE = 1e7, 256
"""Operations of a gradient beside which what any step costs a CPU is little; b grows for them, up to that size."""
STEPS_PER_PASS = 32
"""The fewest steps in a pass over the data that the mini-batch has to leave."""
LAYERED = 2
"""The fewest matrices of a net for the orthogonal step."""
SHARE = 0.5
"""The orthogonal step may take this many times the operations of the gradient, on a CPU."""
ADAPTIVE = Adaptive(rate=0.002, beta2=0.99)
"""The adaptive step of a net of `DEPTH` matrices of up to `WIDTH` columns; second moments of a hundred steps or so."""
WIDTH, DEPTH, LARGEST_RATE = 784, 3, 0.016
FEW, SHALLOW, NARROW, NORMED = 4, 0.014, 2.0, 0.02
"""The orthogonal step of a net of up to `FEW` matrices is at least `SHALLOW`, up to `NARROW` times that if they are
narrow, and at least `NORMED` if it normalises."""
NORMED_SHARE = 0.1
"""The step of all other parameters in units of that of matrices, where a net normalises: gains and embeddings."""
ROW_SHARE, LARGEST_SHARE = 2.0, 0.3
"""The same where weights have one row: so many times 1/√columns, the size of the entries of a row of length 1."""
Norms = Literal["none", "batch", "other"]
"""Whether a net has layers that normalise, and whether all of them do so over the batch."""


def _recurrent(inputs: Sequence[int], weight: Sequence[int], of_state: Sequence[int], *_: Any, **__: Any) -> int:
    """Operations of a recurrent layer over all steps of its inputs, forward, which torch's counter does not know."""
    return 2 * math.prod(inputs[:2]) * (math.prod(weight) + math.prod(of_state))


def _recurrent_backward(*shapes: Any, **others: Any) -> int:
    return 2 * _recurrent(*shapes, **others)


COUNTED = (2, 32)
"""The samples whose operations are counted, and those where these have no gradient."""
RECURRENT = {
    torch.ops.aten.mkldnn_rnn_layer: _recurrent,
    torch.ops.aten.mkldnn_rnn_layer_backward: _recurrent_backward,
}


@dataclass(frozen=True)
class ChosenOptions:
    """The options of `auto` that were chosen, and why."""

    options: dict[str, Any]
    reason: str
    own_step: bool = True
    """Whether the step rule is the one that `auto` chooses, even where it is given, as by the options of a result."""

    step: StepRule | None = None
    """That step rule."""

    def because(self, reason: str) -> ChosenOptions:
        """The same, with something else to tell."""
        return replace(self, reason="; ".join(filter(None, (self.reason, reason))))


def choose_options(
    model: nn.Module, objective: Callable[[Any], Tensor], train: SampleSource, given: dict[str, Any]
) -> ChosenOptions:
    """Choose b and the step rule, as far as they are not given."""
    device = next(model.parameters()).device.type
    open_size, open_step = given.get("b") is None, "step" not in given or isinstance(given["step"], StepRule)
    counted = device == "cpu" and (open_step or open_size)
    operations = gradient_operations(model, objective, train) if counted else math.inf
    b = mini_batch(train.n, device, operations) if open_size else given["b"]
    options: dict[str, Any] = {"b": b} if open_size else {}
    words = [f"b = {b} for n = {train.n} on {device}"]
    step, reason = _step(model, b, device, operations) if open_step else (None, "")
    own = step or auto(b).step
    own_step = open_step and given.get("step") in (None, _but_eps(own, given.get("step")))
    if own_step:
        options |= {} if step is None else {"step": given.get("step") or step}
        words.append(reason)
    if not given.get("weight_decay") and given.get("decoupled_weight_decay") is None:
        words.append(f"a decoupled weight decay of {auto().decay}")
    return ChosenOptions(options, "; ".join(words), own_step, own)


def _but_eps(own: StepRule, given: StepRule | None) -> StepRule:
    """The step that is chosen here with the eps that was given: a result has that of its targets' units."""
    if isinstance(given, (Adaptive, Orthogonal)) and isinstance(own, (Adaptive, Orthogonal)):
        return replace(own, eps=given.eps)
    return own


def decay_of(given: Mapping[str, Any]) -> float:
    """The decoupled weight decay of a run of `auto` with these options."""
    own = given.get("decoupled_weight_decay")
    return (0.0 if given.get("weight_decay") else auto().decay) if own is None else own


def mini_batch(n: int, device: str, operations: float) -> int:
    """The mini-batch for n samples, each with so many operations of its gradient, 0 where none are known."""
    largest = SIZES.get(device, SIZES["cpu"])
    while largest < LARGEST_SIZE and 0 < largest * operations < BUSY:
        largest *= 2
    fitting = 1 << int(math.log2(max(1, n // STEPS_PER_PASS)))
    return min(largest, max(fitting, min(8, n)))


def _step(model: nn.Module, b: int, device: str, operations: float) -> tuple[StepRule | None, str]:
    """None for the orthogonal step of `auto`, or another one; and the reason."""
    shapes = [tuple(p.shape) for p in model.parameters() if p.requires_grad]
    if sum(map(is_matrix, shapes)) < LAYERED:
        step = adaptive_step(shapes, b)
        return step, f"the adaptive step, {step.rate:.2g} for such matrices: polar factors are for nets of layers"
    orthogonal = orthogonal_step(shapes, b, norms_of(model))
    chosen, size = None if orthogonal == auto(b).step else orthogonal, f"{orthogonal.rate:.2g} for such matrices"
    if device != "cpu":
        return chosen, f"the orthogonal step, {size}, whose products are cheap on this device"
    ratio = polar_operations(shapes) / (b * operations) if operations else math.inf
    told = f"polar factors take {ratio:.2g} times the operations of the gradient"
    told = told if operations else "no operations of the gradient can be counted"
    if ratio <= SHARE:
        return chosen, f"the orthogonal step, {size}: {told}"
    step = adaptive_step(shapes, b)
    return step, f"the adaptive step, {step.rate:.2g} for such matrices: {told}"


def orthogonal_step(shapes: list[tuple[int, ...]], b: int, norms: Norms) -> Orthogonal:
    """The orthogonal step of a net with parameters of these shapes, for mini-batches of b samples.

    It is that of `auto`, or longer for few matrices. Without layers that normalise, what steps of all matrices do to
    the scale of the outputs is multiplied from one to the next, so the step goes with 1/matrices, and as the adaptive
    one with 1/√columns where no matrix has `WIDTH` of them, up to `NARROW` times as long; with such layers the
    scale is undone in between, and it goes with 1/√matrices. Where they all normalise over the batch, so that what
    follows a matrix does not depend on its scale at all, it grows with √b from b = 64 on, too.
    """
    step, few = auto(b).step, FEW / max(FEW, sum(map(is_matrix, shapes)))
    assert isinstance(step, Orthogonal)
    if norms != "none":
        grown = max(1.0, b / SIZES["cpu"]) if norms == "batch" else 1.0
        return replace(step, rate=max(step.rate, NORMED * math.sqrt(few * grown)), share=NORMED_SHARE)
    narrow = min(NARROW, math.sqrt(WIDTH / widest(shapes)))
    return replace(step, rate=max(step.rate, SHALLOW * few * narrow), share=max(step.share, row_share(shapes)))


def row_share(shapes: list[tuple[int, ...]]) -> float:
    """The share of the orthogonal step that a weight of one row wants, such as the last one of a regression; or 0."""
    columns = [shape[1] for shape in shapes if len(shape) == 2 and shape[0] == 1]
    return min(LARGEST_SHARE, ROW_SHARE / math.sqrt(max(columns))) if columns else 0.0


def norms_of(model: nn.Module) -> Norms:
    """Over what the model normalises: by its layers with parameters of their own whose class is called a norm."""
    norms = [
        module
        for module in model.modules()
        if re.search("Norm(?![a-z])", type(module).__name__)
        and next(module.parameters(recurse=False), None) is not None
    ]
    if not norms:
        return "none"
    return "batch" if all(isinstance(norm, nn.modules.batchnorm._BatchNorm) for norm in norms) else "other"


def adaptive_step(shapes: list[tuple[int, ...]], b: int) -> Adaptive:
    """The adaptive step of a net with parameters of these shapes, for mini-batches of b samples.

    The narrower a net is, the larger its weights are when it begins, about 1/√columns; and the fewer matrices it has,
    the less do steps of all of them change what it returns. So the rate goes with 1/√(columns · matrices), where more
    than `WIDTH` columns, as of words that may occur in a text, count as so many. It grows with √b from b = 64 on.
    """
    matrices = sum(map(is_matrix, shapes))
    rate = ADAPTIVE.rate * math.sqrt(WIDTH / widest(shapes) * DEPTH / max(1, matrices))
    return replace(ADAPTIVE, rate=min(rate, LARGEST_RATE) * math.sqrt(max(1.0, b / SIZES["cpu"])))


def widest(shapes: list[tuple[int, ...]]) -> int:
    """The most columns of a matrix, `WIDTH` where they are more or where there is none."""
    return min(WIDTH, max((math.prod(shape[1:]) for shape in filter(is_matrix, shapes)), default=WIDTH))


def gradient_operations(model: nn.Module, objective: Callable[[Any], Tensor], train: SampleSource) -> float:
    """Operations of a gradient per sample, counted on the first two samples; 0 where they cannot be counted.

    More samples are taken where the loss of two has no gradient, as where both are unlabelled, or is refused. By
    backward(), because the counter refuses autograd.grad() for models with parametrizations, and wherever the
    objective itself calls it.
    """
    params = list(model.parameters())
    gradients, found = [p.grad for p in params], 0.0
    for count in COUNTED:
        size = min(count, train.n)
        counter, batch = FlopCounterMode(display=False, custom_mapping=RECURRENT), train.take(0, size)
        with untouched(model), seeded(0, params), torch.enable_grad(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Using `torch.compile")  # of the counter's own hooks
            # What else is wrong with the objective will show in the first step.
            with suppress(Exception), counter:
                objective(batch).backward()  # type: ignore[no-untyped-call]
                found = float(counter.get_total_flops()) / size
        if found:
            break
    for p, before in zip(params, gradients, strict=True):
        p.grad = before
    return found


def polar_operations(shapes: list[tuple[int, ...]], iterations: int = 5) -> float:
    """Operations of the polar factors of all matrices: per iteration XXᵀ, A² and one more product with X."""
    total = 0.0
    for shape in filter(is_matrix, shapes):
        small, large = sorted((shape[0], math.prod(shape[1:])))
        total += iterations * (4 * small**2 * large + 2 * small**3)
    return total
