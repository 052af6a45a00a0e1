"""Eight numbers at a time, for compiled loops that a compiler left alone does not vectorise well.

`Lanes` is a type of numba's: inside a compiled function `a * b + c` on lanes is one instruction or a few, on every
processor (LLVM cuts them to its width). Loops over rows keep eight rows in flight: eight dot products are summed across
lanes together (`across`), and what comes of it is eight margins in one value, ready for the loss.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, lower_builtin, type_callable

from vcsg.linear.kernels.emitted import (
    DOUBLE,
    LANES,
    VECTOR,
    WHOLE,
    WIDTH,
    Lanes,
    Traced,
    count_up,
    emitted,
    spread,
    when,
)

INTEGERS = ir.VectorType(WHOLE, WIDTH)
ZERO = ir.Constant(VECTOR, [0.0] * WIDTH)


def _operator(function: Any, build: str) -> None:
    @type_callable(function)  # type: ignore[untyped-decorator]
    def typed(context: Any) -> Any:
        return lambda a, b: LANES if isinstance(a, Lanes) and isinstance(b, Lanes) else None

    @lower_builtin(function, LANES, LANES)  # type: ignore[untyped-decorator]
    def lowered(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return getattr(builder, build)(*args)


for function, build in (
    (operator.add, "fadd"), (operator.sub, "fsub"), (operator.mul, "fmul"), (operator.truediv, "fdiv"),
):  # fmt: skip
    _operator(function, build)


def _place(array: Traced, offset: Any) -> tuple[Any, Any]:
    """A pointer to eight numbers from `offset` on, and their type."""
    builder, kind = array.builder, ir.VectorType(array.value.type.pointee, WIDTH)
    return builder.bitcast(at(array, offset), kind.as_pointer()), kind


def at(array: Traced, offset: Any) -> Any:
    """A pointer to the number at `offset`, as LLVM has it."""
    return array.builder.gep(array.value, [offset.value if isinstance(offset, Traced) else WHOLE(offset)])


def _wide(array: Traced, value: Any) -> Traced:
    """Numbers that were loaded, in double precision."""
    kind = VECTOR if isinstance(value.type, ir.VectorType) else DOUBLE
    return Traced(array.builder, value if value.type == kind else array.builder.fpext(value, kind))


def _narrow(value: Traced, kind: Any) -> Any:
    """Numbers that are to be stored, in the precision of the array."""
    return value.value if value.value.type == kind else value.builder.fptrunc(value.value, kind)


def _mask(count: Traced) -> Any:
    """A mask of the first `count` lanes."""
    builder = count.builder
    single = builder.insert_element(ir.Constant(INTEGERS, ir.Undefined), count.value, ir.IntType(32)(0))
    same = ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [0] * WIDTH)
    counts = builder.shuffle_vector(single, single, same)
    return builder.icmp_signed("<", ir.Constant(INTEGERS, list(range(WIDTH))), counts)


def call(builder: Any, name: str, result: Any, args: list[Any], fastmath: tuple[str, ...] = ()) -> Any:
    """Call a function of LLVM's by its name."""
    kind = ir.FunctionType(result, [arg.type for arg in args])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), args, fastmath=fastmath)


def _align(kind: Any) -> int:
    return 8 if kind in (VECTOR, DOUBLE) else 4


@intrinsic  # type: ignore[untyped-decorator]
def pointer(typing: Any, array: Any) -> Any:
    """A pointer to a C-ordered array's first number. Passing it to a function costs nothing; an array is counted."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.make_array(signature.args[0])(context, builder, args[0]).data

    return types.CPointer(array.dtype)(array), build


@intrinsic  # type: ignore[untyped-decorator]
def located(typing: Any, arrays: Any) -> Any:
    """The pointers of a tuple of arrays."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        items = zip(signature.args[0], cgutils.unpack_tuple(builder, args[0]), strict=True)
        data = [context.make_array(kind)(context, builder, array).data for kind, array in items]
        return context.make_tuple(builder, signature.return_type, data)

    return types.Tuple([types.CPointer(array.dtype) for array in arrays])(arrays), build


@intrinsic  # type: ignore[untyped-decorator]
def keep_alive(typing: Any, array: Any) -> Any:
    """Do nothing, but keep an array that is only read through its pointer alive up to here."""
    return types.none(array), lambda context, builder, signature, args: context.get_dummy_value()


@emitted(lambda array, offset: array)
def offset_pointer(array: Traced, offset: Traced) -> Traced:
    """A pointer to the number at `offset`."""
    return Traced(array.builder, at(array, offset))


@emitted(types.none)
def prefetch(array: Traced, offset: Traced) -> None:
    """Ask memory to bring the number at `offset` and its neighbours into the L1 cache, without waiting."""
    place = array.builder.bitcast(at(array, offset), ir.IntType(8).as_pointer())
    read, level, data = (ir.IntType(32)(flag) for flag in (0, 3, 1))
    call(array.builder, "llvm.prefetch.p0", ir.VoidType(), [place, read, level, data])


@emitted(types.float64)
def number(array: Traced, offset: Any) -> Traced:
    """Load one number."""
    return _wide(array, array.builder.load(at(array, offset)))


@emitted(types.none)
def store_number(array: Traced, offset: Any, value: Traced) -> None:
    """Write one number."""
    array.builder.store(value.value, at(array, offset))


@emitted(LANES)
def load(array: Traced, offset: Traced) -> Traced:
    """Load eight numbers from `offset` on."""
    place, kind = _place(array, offset)
    return _wide(array, array.builder.load(place, align=_align(kind)))


@emitted(LANES)
def load_some(array: Traced, offset: Traced, count: Traced) -> Traced:
    """Load the first `count` of eight numbers; the other lanes are 0 and their memory is not touched."""
    place, kind = _place(array, offset)
    name = f"llvm.masked.load.v{WIDTH}{'f64' if kind == VECTOR else 'f32'}.p0"
    args = [place, ir.IntType(32)(_align(kind)), _mask(count), ir.Constant(kind, None)]
    return _wide(array, call(array.builder, name, kind, args))


@emitted(LANES)
def load_apart(array: Traced, offset: Traced, distance: Traced) -> Traced:
    """Load eight numbers that lie `distance` apart."""
    return gathered(array, [offset + distance * i for i in range(WIDTH)])


@emitted(types.none)
def store(array: Traced, offset: Traced, value: Traced) -> None:
    """Write eight numbers from `offset` on."""
    place, kind = _place(array, offset)
    array.builder.store(_narrow(value, kind), place, align=_align(kind))


@emitted(types.none)
def store_some(array: Traced, offset: Traced, count: Traced, value: Traced) -> None:
    """Write only the first `count` lanes."""
    place, kind = _place(array, offset)
    args = [_narrow(value, kind), place, ir.IntType(32)(_align(kind)), _mask(count)]
    name = f"llvm.masked.store.v{WIDTH}{'f64' if kind == VECTOR else 'f32'}.p0"
    call(array.builder, name, ir.VoidType(), args)


def size_of(array: Traced) -> int:
    """The size in bytes of a number of an array."""
    return 8 if array.value.type.pointee == DOUBLE else 4


def room(beside: Traced, size: int) -> Traced:
    """A pointer to room for `size` numbers that lasts as long as the compiled call."""
    return Traced(beside.builder, cgutils.alloca_once(beside.builder, DOUBLE, size=size))


def zeros(beside: Traced) -> Traced:
    """Eight zeros."""
    return Traced(beside.builder, ZERO)


def first_lanes(value: Traced, count: Traced) -> Traced:
    """The first `count` lanes; the others become 0."""
    return Traced(value.builder, value.builder.select(_mask(count), value.value, ZERO))


def sweep(
    size: Traced,
    body: Callable[[Callable[..., Traced], Callable[..., None]], None],
    before: Callable[[Traced], None] = lambda _: None,
) -> None:
    """Write a loop over the numbers 0 to `size` of some arrays, eight at a time, and what is left once more.

    `body` gets two functions: `read(array, offset)` and `write(array, value, offset)`; the offset, at which the
    array's part begins, is 0 where it is left out. `before` gets the place of every eight, and of what is left.
    """
    whole = size & -WIDTH

    def place(offset: Any, j: Traced) -> Traced:
        return j if offset is None else offset + j

    for j in count_up(0, whole, WIDTH):
        before(j)
        body(
            lambda array, offset=None, j=j: load(array, place(offset, j)),
            lambda array, value, offset=None, j=j: store(array, place(offset, j), value),
        )
    with when(whole.compare("<", size)):
        left = size - whole
        before(whole)
        body(
            lambda array, offset=None: load_some(array, place(offset, whole), left),
            lambda array, value, offset=None: store_some(array, place(offset, whole), left, value),
        )


@emitted(LANES)
def splat(value: Traced) -> Traced:
    """The same number in all lanes."""
    return spread(value)


def gathered(array: Traced, offsets: list[Traced]) -> Traced:
    """The eight numbers at these offsets."""
    builder, value = array.builder, ir.Constant(VECTOR, ir.Undefined)
    for i, offset in enumerate(offsets):
        value = builder.insert_element(value, number(array, offset).value, ir.IntType(32)(i))
    return Traced(builder, value)


def place_number(array: Traced, offset: Traced) -> Traced:
    """Load one number of an array of signed integers."""
    value = array.builder.load(at(array, offset))
    return Traced(array.builder, value if value.type == WHOLE else array.builder.sext(value, WHOLE))


def indexed(index: Traced, first: Traced, apart: Traced) -> list[Traced]:
    """The row numbers index[first + i·apart] for i < 8."""
    builder = index.builder
    rows = [builder.load(at(index, first + apart * i)) for i in range(WIDTH)]
    return [Traced(builder, builder.zext(row, WHOLE)) for row in rows]


@emitted(types.UniTuple(types.int64, WIDTH))
def row_numbers(index: Traced, first: Traced, count: Traced) -> list[Traced]:
    """index[first], …: `count` of eight row numbers, the last one again in the places that are left."""
    builder, last, found = index.builder, count - 1, []
    for i in range(WIDTH):
        row = builder.load(at(index, first + last.compare(">", i).choose(i, last)))
        found.append(Traced(builder, builder.zext(row, WHOLE)))
    return found


@emitted(LANES)
def take(array: Traced, index: Traced, first: Traced, count: Traced) -> Traced:
    """array[index[first]], …: `count` of them, the last one again in the lanes that are left."""
    return gathered(array, row_numbers(index, first, count))


@emitted(LANES)
def fma(a: Any, b: Any, c: Any) -> Traced:
    """ab + c, rounded once where the processor can."""
    known = next(value for value in (a, b, c) if isinstance(value, Traced) and value.value.type == VECTOR)
    name, args = f"llvm.fmuladd.v{WIDTH}f64", [known.same(value) for value in (a, b, c)]
    return Traced(known.builder, call(known.builder, name, VECTOR, args))


@emitted(LANES)
def where_negative(test: Traced, a: Any, b: Any) -> Traced:
    """a where test < 0, else b."""
    return test.compare("<", 0.0).choose(a, b)


@emitted(LANES)
def scale_by_power(value: Traced, shifted: Traced) -> Traced:
    """value·2^k for a whole number k ≥ −1022, given as k + 1.5·2⁵²: the last bits of that are k's."""
    builder = value.builder
    exponent = builder.shl(builder.bitcast(shifted.value, INTEGERS), ir.Constant(INTEGERS, [52] * WIDTH))
    return Traced(builder, builder.bitcast(builder.add(builder.bitcast(value.value, INTEGERS), exponent), VECTOR))


@emitted(types.float64)
def lane(value: Traced, i: Any) -> Traced:
    """The number in lane i."""
    place = value.builder.trunc(i.value, ir.IntType(32)) if isinstance(i, Traced) else ir.IntType(32)(i)
    return Traced(value.builder, value.builder.extract_element(value.value, place))


def _fold(a: Traced, b: Traced, distance: int) -> Traced:
    """Sums of lanes that are `distance` apart, those of a and those of b in turn, `distance` lanes of each."""
    first, second = [], []
    for i in range(WIDTH):
        block, inside = divmod(i, distance)
        origin = (block // 2) * 2 * distance + inside + (WIDTH if block % 2 else 0)
        first.append(origin)
        second.append(origin + distance)
    kind = ir.VectorType(ir.IntType(32), WIDTH)
    left, right = (a.builder.shuffle_vector(a.value, b.value, ir.Constant(kind, part)) for part in (first, second))
    return Traced(a.builder, left) + Traced(a.builder, right)


@emitted(LANES)
def across(a: Traced, b: Traced, c: Traced, d: Traced, e: Traced, f: Traced, g: Traced, h: Traced) -> Traced:
    """Lane i of the result is the sum of all lanes of argument i."""
    level = [a, b, c, d, e, f, g, h]
    for distance in (1, 2, 4):
        level = [_fold(level[i], level[i + 1], distance) for i in range(0, len(level), 2)]
    return level[0]


@emitted(types.float64)
def total(value: Traced) -> Traced:
    """The sum of all lanes."""
    name, args = f"llvm.vector.reduce.fadd.v{WIDTH}f64", [DOUBLE(0.0), value.value]
    return Traced(value.builder, call(value.builder, name, DOUBLE, args, fastmath=("reassoc",)))
