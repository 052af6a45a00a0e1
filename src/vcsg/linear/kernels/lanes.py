"""Eight numbers at a time, for compiled loops that a compiler left alone does not vectorise well.

`Lanes` is a type of numba's: inside a compiled function `a * b + c` on lanes is one instruction or a few, on every
processor (LLVM cuts them to its width). Loops over rows keep eight rows in flight: eight dot products are summed across
lanes together (`across`), and what comes of it is eight margins in one value, ready for the loss.
"""

from __future__ import annotations

import operator
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, lower_builtin, models, register_model, type_callable

WIDTH = 8
DOUBLE = ir.DoubleType()
VECTOR = ir.VectorType(DOUBLE, WIDTH)
INTEGERS = ir.VectorType(ir.IntType(64), WIDTH)
BITS = ir.VectorType(ir.IntType(1), WIDTH)


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


def _vector(values: list[Any]) -> Any:
    return ir.Constant(ir.VectorType(values[0].type, len(values)), [value.constant for value in values])


def _splat(builder: Any, value: Any) -> Any:
    single = builder.insert_element(ir.Constant(VECTOR, ir.Undefined), value, ir.IntType(32)(0))
    return builder.shuffle_vector(single, single, _vector([ir.IntType(32)(0)] * WIDTH))


def _place(context: Any, builder: Any, pointer_type: Any, pointer: Any, offset: Any) -> tuple[Any, Any]:
    """A pointer to eight numbers from `offset` on, and their type."""
    kind = ir.VectorType(context.get_data_type(pointer_type.dtype), WIDTH)
    return builder.bitcast(builder.gep(pointer, [offset]), kind.as_pointer()), kind


def _mask(builder: Any, count: Any) -> Any:
    """A mask of the first `count` lanes."""
    wide = ir.IntType(64)
    single = builder.insert_element(ir.Constant(INTEGERS, ir.Undefined), count, ir.IntType(32)(0))
    counts = builder.shuffle_vector(single, single, _vector([ir.IntType(32)(0)] * WIDTH))
    return builder.icmp_signed("<", _vector([wide(i) for i in range(WIDTH)]), counts)


def _call(builder: Any, name: str, result: Any, args: list[Any], fastmath: tuple[str, ...] = ()) -> Any:
    kind = ir.FunctionType(result, [arg.type for arg in args])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), args, fastmath=fastmath)


@intrinsic  # type: ignore[untyped-decorator]
def pointer(typing: Any, array: Any) -> Any:
    """A pointer to a C-ordered array's first number. Passing it to a function costs nothing; an array is counted."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.make_array(signature.args[0])(context, builder, args[0]).data

    return types.CPointer(array.dtype)(array), build


@intrinsic  # type: ignore[untyped-decorator]
def offset_pointer(typing: Any, array: Any, offset: Any) -> Any:
    """A pointer to the number at `offset`."""
    return array(array, types.int64), lambda context, builder, signature, args: builder.gep(args[0], [args[1]])


@intrinsic  # type: ignore[untyped-decorator]
def keep_alive(typing: Any, array: Any) -> Any:
    """Do nothing, but keep an array that is only read through its pointer alive up to here."""
    return types.none(array), lambda context, builder, signature, args: context.get_dummy_value()


@intrinsic  # type: ignore[untyped-decorator]
def keep_rolled(typing: Any) -> Any:
    """Do nothing, but keep the enclosing loop from being unrolled: the setup takes longer than a short loop."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [])
        call = builder.asm(kind, "", "", [], True)
        call.attributes.add("convergent")  # LLVM may not copy it to places that not all iterations reach
        return context.get_dummy_value()

    return types.none(), build


@intrinsic  # type: ignore[untyped-decorator]
def prefetch(typing: Any, array: Any, offset: Any) -> Any:
    """Ask memory to bring the number at `offset` and its neighbours into the L2 cache, without waiting."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = builder.bitcast(builder.gep(args[0], [args[1]]), ir.IntType(8).as_pointer())
        read, level, data = (ir.IntType(32)(flag) for flag in (0, 2, 1))
        _call(builder, "llvm.prefetch.p0", ir.VoidType(), [place, read, level, data])
        return context.get_dummy_value()

    return types.none(array, types.int64), build


@intrinsic  # type: ignore[untyped-decorator]
def load(typing: Any, array: Any, offset: Any) -> Any:
    """Load eight numbers from `offset` on."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer, kind = _place(context, builder, signature.args[0], *args)
        value = builder.load(pointer, align=array.dtype.bitwidth // 8)
        return value if kind == VECTOR else builder.fpext(value, VECTOR)

    return LANES(array, types.int64), build


@intrinsic  # type: ignore[untyped-decorator]
def load_some(typing: Any, array: Any, offset: Any, count: Any) -> Any:
    """Load the first `count` of eight numbers; the other lanes are 0 and their memory is not touched."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer, kind = _place(context, builder, signature.args[0], *args[:2])
        name = "f64" if kind == VECTOR else "f32"
        align = ir.IntType(32)(array.dtype.bitwidth // 8)
        value = _call(
            builder, f"llvm.masked.load.v{WIDTH}{name}.p0", kind,
            [pointer, align, _mask(builder, args[2]), ir.Constant(kind, None)],
        )  # fmt: skip
        return value if kind == VECTOR else builder.fpext(value, VECTOR)

    return LANES(array, types.int64, types.int64), build


@intrinsic  # type: ignore[untyped-decorator]
def load_apart(typing: Any, array: Any, offset: Any, distance: Any) -> Any:
    """Load eight numbers that lie `distance` apart."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value, place = ir.Constant(VECTOR, ir.Undefined), args[1]
        for i in range(WIDTH):
            value = builder.insert_element(value, builder.load(builder.gep(args[0], [place])), ir.IntType(32)(i))
            place = builder.add(place, args[2])
        return value

    return LANES(array, types.int64, types.int64), build


@intrinsic  # type: ignore[untyped-decorator]
def store(typing: Any, array: Any, offset: Any, value: Any) -> Any:
    """Write eight numbers from `offset` on."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer, _ = _place(context, builder, signature.args[0], *args[:2])
        builder.store(args[2], pointer, align=8)
        return context.get_dummy_value()

    return types.none(array, types.int64, LANES), build


@intrinsic  # type: ignore[untyped-decorator]
def store_some(typing: Any, array: Any, offset: Any, count: Any, value: Any) -> Any:
    """Write only the first `count` lanes."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer, _ = _place(context, builder, signature.args[0], *args[:2])
        mask = _mask(builder, args[2])
        _call(builder, f"llvm.masked.store.v{WIDTH}f64.p0", ir.VoidType(), [args[3], pointer, ir.IntType(32)(8), mask])
        return context.get_dummy_value()

    return types.none(array, types.int64, types.int64, LANES), build


@intrinsic  # type: ignore[untyped-decorator]
def splat(typing: Any, value: Any) -> Any:
    """The same number in all lanes."""
    return LANES(types.float64), lambda context, builder, signature, args: _splat(builder, args[0])


@intrinsic  # type: ignore[untyped-decorator]
def take(typing: Any, array: Any, index: Any, first: Any, count: Any) -> Any:
    """array[index[first]], …: `count` of them, the last one again in the lanes that are left."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        wide, value = ir.IntType(64), ir.Constant(VECTOR, ir.Undefined)
        last = builder.sub(args[3], wide(1))
        for i in range(WIDTH):
            inside = builder.icmp_signed("<", wide(i), last)
            place = builder.add(args[2], builder.select(inside, wide(i), last))
            row = builder.zext(builder.load(builder.gep(args[1], [place])), wide)
            value = builder.insert_element(value, builder.load(builder.gep(args[0], [row])), ir.IntType(32)(i))
        return value

    return LANES(array, index, types.int64, types.int64), build


@intrinsic  # type: ignore[untyped-decorator]
def fma(typing: Any, a: Any, b: Any, c: Any) -> Any:
    """ab + c, rounded once where the processor can."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _call(builder, f"llvm.fmuladd.v{WIDTH}f64", VECTOR, list(args))

    return LANES(LANES, LANES, LANES), build


@intrinsic  # type: ignore[untyped-decorator]
def where_negative(typing: Any, test: Any, a: Any, b: Any) -> Any:
    """a where test < 0, else b."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered("<", args[0], ir.Constant(VECTOR, [0.0] * WIDTH)), *args[1:])

    return LANES(LANES, LANES, LANES), build


@intrinsic  # type: ignore[untyped-decorator]
def scale_by_power(typing: Any, value: Any, shifted: Any) -> Any:
    """value·2^k for a whole number k ≥ −1022, given as k + 1.5·2⁵²: the last bits of that are k's."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        shift = ir.Constant(INTEGERS, [52] * WIDTH)
        exponent = builder.shl(builder.bitcast(args[1], INTEGERS), shift)
        return builder.bitcast(builder.add(builder.bitcast(args[0], INTEGERS), exponent), VECTOR)

    return LANES(LANES, LANES), build


@intrinsic  # type: ignore[untyped-decorator]
def lane(typing: Any, value: Any, i: Any) -> Any:
    """The number in lane i."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.extract_element(args[0], builder.trunc(args[1], ir.IntType(32)))

    return types.float64(LANES, types.int64), build


def _fold(builder: Any, a: Any, b: Any, distance: int) -> Any:
    """Sums of lanes that are `distance` apart, those of a and those of b in turn, `distance` lanes of each."""
    first, second = [], []
    for i in range(WIDTH):
        block, inside = divmod(i, distance)
        origin = (block // 2) * 2 * distance + inside + (WIDTH if block % 2 else 0)
        first.append(ir.IntType(32)(origin))
        second.append(ir.IntType(32)(origin + distance))
    return builder.fadd(builder.shuffle_vector(a, b, _vector(first)), builder.shuffle_vector(a, b, _vector(second)))


@intrinsic  # type: ignore[untyped-decorator]
def across(typing: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any) -> Any:
    """Lane i of the result is the sum of all lanes of argument i."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        level = list(args)
        for distance in (1, 2, 4):
            level = [_fold(builder, level[i], level[i + 1], distance) for i in range(0, len(level), 2)]
        return level[0]

    return LANES(*[LANES] * 8), build


@intrinsic  # type: ignore[untyped-decorator]
def total(typing: Any, value: Any) -> Any:
    """The sum of all lanes."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        name, start = f"llvm.vector.reduce.fadd.v{WIDTH}f64", DOUBLE(0.0)
        return _call(builder, name, DOUBLE, [start, args[0]], fastmath=("reassoc",))

    return types.float64(LANES), build
