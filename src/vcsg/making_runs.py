"""How the run of an optimizer is made: its method resolved, and the executor that runs it on the parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch.optim.optimizer import Optimizer

from vcsg.method import registry
from vcsg.method.definition import Method
from vcsg.method.whole_batches import for_batches, options_for_batches
from vcsg.optimizer_options import RunOptions
from vcsg.run.closures import ClosureExecutor
from vcsg.run.course import Course
from vcsg.run.course_options import CourseOptions
from vcsg.run.point import Point
from vcsg.run.ranks import ranks_of

Factory = Callable[..., Method]


def resolve(
    preset: Factory | None, method: Method | str | None, options: dict[str, Any], b: int | None = None
) -> Method:
    """The method, that of a preset if it is one; where b is given, for mini-batches of b samples from a loop."""
    factory = preset if method is None else None
    if isinstance(method, str) and preset is None:
        factory = registry.factory(method)
    if factory is not None:
        found = registry.build(factory, options if b is None else options_for_batches(factory, options, b))
        return found if b is None else for_batches(found, b)
    if not isinstance(method, Method) or preset is not None:
        raise TypeError(
            f"method = {method!r}: FiniteSumOptimizer takes a Method or a name ({', '.join(registry.methods())}), "
            "its presets take none"
        )
    if options:
        raise TypeError(f"options {', '.join(options)} go to a method given by name, not to a Method")
    return method if b is None else for_batches(method, b)


def make_run(
    optimizer: Optimizer, given: RunOptions, preset: Factory | None, n: int, batch_size: int | None
) -> ClosureExecutor:
    """The run of an optimizer, for n samples that are drawn here, or that a loop hands over in batches."""
    ranks = ranks_of(given.group, least=2 if given.buffers else 1)  # BatchNorm has no statistics of one sample
    given.check_batch_size(n, batch_size, ranks.share.ranks)
    b = None if batch_size is None else int(batch_size) * ranks.share.ranks
    method = resolve(preset, given.method, given.options, b)
    if given.step is not None:
        method = replace(method, step=given.step)
    lr, L = given.lr, given.L
    if L is not None and not method.needs_L:
        rule = type(method.step).__name__
        raise ValueError(f"L = {L!r}: the step rule {rule} has a step size of its own; leave L out, or give lr=")
    # With lr alone it is the base step: η = lr·γ/(L·unit) is lr when L = γ/lr and the unit is lr.
    unit = float(lr) if lr is not None and L is None else 1.0
    smooth = lr is None or L is not None
    L = L if smooth else method.base / unit
    point = Point(optimizer, given.buffers, given.clip_norm, method.step)
    size = None if batch_size is None else int(batch_size)
    chosen = CourseOptions(given.output or method.output, given.variance, given.chunk, given.clip_norm, size)
    course = Course(method, int(n), point, ranks.share, chosen, given.seed, L, unit, smooth)
    return ClosureExecutor(course, point, ranks)
