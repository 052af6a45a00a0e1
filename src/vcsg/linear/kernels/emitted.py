"""Short functions that write their LLVM instructions themselves, where numba would infer types and optimise for long.

A function with `@emitted` is called once for every place in compiled code that calls it. Its arguments stand for the
numbers of the run: arithmetic on them adds instructions to the loop that is being compiled. Python's own loops and
lists are carried out then and there, so eight copies of a line are a loop of eight. What is to be repeated or left out
in the run is written with `count_up` and `when`, and what changes there is a `Variable`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import lower_builtin, models, register_model, type_callable

WIDTH = 8
BLOCK = 2 * WIDTH
"""The places that `blocks` takes at a time."""
DOUBLE, WHOLE = ir.DoubleType(), ir.IntType(64)
VECTOR = ir.VectorType(DOUBLE, WIDTH)


class Lanes(types.Type):  # type: ignore[misc]
    """Eight float64 numbers, as a type that compiled functions know."""

    def __init__(self) -> None:
        super().__init__(name="Lanes")


LANES = Lanes()


@register_model(Lanes)
class LanesModel(models.PrimitiveModel):  # type: ignore[misc]
    """Lanes are held as one LLVM vector."""

    def __init__(self, manager: Any, fe_type: Any) -> None:
        super().__init__(manager, fe_type, VECTOR)


class Traced:
    """A number of the run, eight of them, a truth value or a pointer, while instructions are written."""

    def __init__(self, builder: Any, value: Any) -> None:
        self.builder, self.value = builder, value

    @property
    def whole(self) -> bool:
        """Whether it is an integer."""
        return isinstance(self.value.type, ir.IntType)

    @property
    def real(self) -> Traced:
        """An integer as a float64 number."""
        return Traced(self.builder, self.builder.sitofp(self.value, DOUBLE))

    def constant(self, number: float) -> Traced:
        """A constant of the same type."""
        return Traced(self.builder, self.same(number))

    def same(self, other: Any) -> Any:
        """The LLVM value of a number beside this one; constants and single numbers become lanes beside lanes."""
        kind = self.value.type
        if not isinstance(other, Traced):
            return ir.Constant(kind, [float(other)] * WIDTH if kind == VECTOR else other)
        if kind == VECTOR and other.value.type == DOUBLE:
            return spread(other).value
        return other.value

    def _with(self, other: Any, whole: str, real: str) -> Traced:
        if isinstance(other, Traced) and other.value.type == VECTOR and self.value.type == DOUBLE:
            return spread(self)._with(other, whole, real)
        build = getattr(self.builder, whole if self.whole else real)
        return Traced(self.builder, build(self.value, self.same(other)))

    def __add__(self, other: Any) -> Traced:
        return self._with(other, "add", "fadd")

    def __sub__(self, other: Any) -> Traced:
        return self._with(other, "sub", "fsub")

    def __mul__(self, other: Any) -> Traced:
        return self._with(other, "mul", "fmul")

    def __truediv__(self, other: Any) -> Traced:
        return self._with(other, "sdiv", "fdiv")

    def __and__(self, other: Any) -> Traced:
        return self._with(other, "and_", "")

    def __rsub__(self, other: Any) -> Traced:
        return self.constant(other) - self

    def __rtruediv__(self, other: Any) -> Traced:
        return self.constant(other) / self

    def __neg__(self) -> Traced:
        return 0 - self

    __radd__, __rmul__ = __add__, __mul__

    def compare(self, sign: str, other: Any) -> Traced:
        """A truth value, or eight of them, of a comparison with a number or lanes; with NaN it is false."""
        test = self.builder.icmp_signed if self.whole else self.builder.fcmp_ordered
        return Traced(self.builder, test(sign, self.value, self.same(other)))

    def choose(self, yes: Any, no: Any) -> Traced:
        """`yes` where this truth value holds, else `no`; one of the two is Traced."""
        known = yes if isinstance(yes, Traced) else no
        return Traced(self.builder, self.builder.select(self.value, known.same(yes), known.same(no)))


def spread(number: Traced) -> Traced:
    """The same number in all lanes."""
    builder = number.builder
    single = builder.insert_element(ir.Constant(VECTOR, ir.Undefined), number.value, ir.IntType(32)(0))
    lanes = ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [0] * WIDTH)
    return Traced(builder, builder.shuffle_vector(single, single, lanes))


class Variable:
    """A number that changes in the run. LLVM keeps it in a register."""

    def __init__(self, value: Traced) -> None:
        self.place = cgutils.alloca_once(value.builder, value.value.type)
        self.builder, self.value = value.builder, value

    @property
    def value(self) -> Traced:
        return Traced(self.builder, self.builder.load(self.place))

    @value.setter
    def value(self, new: Traced) -> None:
        self.builder.store(new.value, self.place)


def count_up(start: Any, stop: Traced, step: Any = 1) -> Iterator[Traced]:
    """`for i in count_up(…)` repeats what is written in its body, once, in the run. The loop is not unrolled: what that
    sets up takes longer than a short loop.
    """
    builder = stop.builder
    with cgutils.for_range_slice(builder, stop.same(start), stop.value, stop.same(step), WHOLE) as (i, _):
        call = builder.asm(ir.FunctionType(ir.VoidType(), []), "", "", [], True)
        call.attributes.add("convergent")  # LLVM may not copy it to places that not all iterations reach
        yield Traced(builder, i)


def eights(start: Any, stop: Traced) -> Iterator[tuple[Traced, Traced, Traced]]:
    """`for first, count, apart in eights(…)` takes the places from `start` on eight at a time, and those that are left
    one by one: place i of a turn is first + i·apart, with apart = 0 for a single one, and `count` of them are new.

    Offsets that grow evenly are faster than any that are looked up.
    """
    whole = stop - ((stop - start) & (WIDTH - 1))
    for turn in count_up(0, stop.constant(2)):
        single = turn.compare("==", 1)
        count, apart = single.choose(stop.constant(1), WIDTH), single.choose(stop.constant(0), 1)
        for first in count_up(single.choose(whole, start), single.choose(stop, whole), count):
            yield first, count, apart


def blocks(start: Any, stop: Traced) -> Iterator[tuple[Traced, Traced, Traced, Traced]]:
    """`for first, groups, count, apart in blocks(…)` takes sixteen places at a time, as two groups of eight; then those
    that are left as one group of eight, and the last ones one by one: `count` and `apart` as in `eights`.
    """
    two, one, none = (stop.constant(number) for number in (2, 1, 0))
    sixteens, whole = stop - ((stop - start) & (BLOCK - 1)), stop - ((stop - start) & (WIDTH - 1))
    for turn in count_up(0, stop.constant(3)):
        pair, single = turn.compare("==", 0), turn.compare("==", 2)
        groups, count, apart = pair.choose(two, one), single.choose(one, WIDTH), single.choose(none, one)
        begin = pair.choose(start, single.choose(whole, sixteens))
        for first in count_up(begin, pair.choose(sixteens, single.choose(stop, whole)), groups * count):
            yield first, groups, count, apart


def when(condition: Traced) -> AbstractContextManager[Any]:
    """`with when(…):` does what is written in its body only where the condition holds in the run."""
    block: AbstractContextManager[Any] = condition.builder.if_then(condition.value)
    return block


def chosen(
    number: Traced, cases: Mapping[int, Callable[[], tuple[Traced, ...]]], other: Callable[[], tuple[Traced, ...]]
) -> list[Traced]:
    """The values of the case that the number has in the run, else of `other`."""
    builder = number.builder
    end = builder.append_basic_block("end")
    default = builder.append_basic_block("other")
    switch, arms = builder.switch(number.value, default), []
    for case, body in [*cases.items(), (None, other)]:
        block = default if case is None else builder.append_basic_block(f"case.{case}")
        if case is not None:
            switch.add_case(number.value.type(case), block)
        builder.position_at_end(block)
        arms.append((body(), builder.block))  # a body may have blocks of its own
        builder.branch(end)
    builder.position_at_end(end)
    found = []
    for values in zip(*(values for values, _ in arms), strict=True):
        phi = builder.phi(values[0].value.type)
        for value, (_, block) in zip(values, arms, strict=True):
            phi.add_incoming(value.value, block)
        found.append(Traced(builder, phi))
    return found


def _kind(argument: Any) -> Any:
    """The type in which an argument is handed over: whole numbers as int64, others as float64."""
    plain = types.unliteral(argument)
    if isinstance(plain, types.Boolean):
        return plain
    if isinstance(plain, types.Integer):
        return types.int64
    return types.float64 if isinstance(plain, types.Float) else plain


def _traced(builder: Any, kind: Any, value: Any) -> Any:
    """A value of the run for the body of a function; a tuple becomes a list of them."""
    if isinstance(kind, types.BaseTuple):
        return [Traced(builder, item) for item in cgutils.unpack_tuple(builder, value)]
    return Traced(builder, value)


def emitted(result: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a function on `Traced` values known to compiled code.

    `result` is its type, or a function of the types of the arguments. The function itself can be called by others of
    its kind.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @type_callable(function)  # type: ignore[untyped-decorator]
        def typed(context: Any) -> Any:
            def signature(*args: Any) -> Any:
                kinds = [_kind(argument) for argument in args]
                return (result if isinstance(result, types.Type) else result(*kinds))(*kinds)

            signature.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
            return signature

        @lower_builtin(function, types.VarArg(types.Any))  # type: ignore[untyped-decorator]
        def lowered(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            found = function(*[_traced(builder, *pair) for pair in zip(signature.args, args, strict=True)])
            if found is None:
                return context.get_dummy_value()
            if isinstance(found, (tuple, list)):
                return context.make_tuple(builder, signature.return_type, [item.value for item in found])
            return found.value

        return function

    return decorate
