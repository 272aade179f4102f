"""Machine code of compiled functions, kept in files: numba makes it once, and later runs load it without numba.

Loading numba takes longer than all else of a start. What it compiles are functions of a few kilobytes that call nothing
but a CRC and the C library, so LLVM alone links them.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from functools import cache
from itertools import count
from struct import Struct
from typing import Any, Final, NamedTuple

from rmqtool.scan.kernels import crc_symbol

LIBRARY_FUNCTIONS: Final = frozenset({"memcpy", "memmove", "memset", "memcmp"})
RETURNED: Final = (0, -2)
"""What a function answers beside its results: that they are there, or that there are none."""
_FORMATS: Final = {"bool": "?", "int32": "i", "int64": "q", "uint32": "I", "uint64": "Q", "none": ""}
_NUMBERS: Final = {
    "?1": ctypes.c_uint8,
    "i4": ctypes.c_int32,
    "i8": ctypes.c_int64,
    "u4": ctypes.c_uint32,
    "u8": ctypes.c_uint64,
}
_OWNERS: Final = re.compile(r"^ *(tail )?call void @NRT_(in|de)cref\(.*$", re.MULTILINE)
"""Numba counts who owns an array; those that are given here have no owner that it knows."""
_NAMES: Final = count()


class Array(NamedTuple):
    """What code depends on in an argument that is an array."""

    dtype: Any
    dimensions: int
    is_c_ordered: bool
    is_f_ordered: bool
    is_writeable: bool
    is_aligned: bool


Argument = Array | type
"""What code depends on in an argument: an array as above, or the type of a number."""


class MachineCode(NamedTuple):
    """A compiled function.

    Attributes:
        results: a letter of `struct` each.
        is_tuple: whether it returns several numbers.
    """

    symbol: str
    calls_crc: bool
    results: str
    is_tuple: bool
    content: bytes


def arguments_of(values: Sequence[Any]) -> tuple[Argument, ...]:
    """What the code of a function depends on where it is called with these values."""
    return tuple(map(_argument_of, values))


def _argument_of(value: Any) -> Argument:
    if not hasattr(value, "flags"):
        return type(value)
    flags = value.flags
    return Array(value.dtype, value.ndim, flags.c_contiguous, flags.f_contiguous, flags.writeable, flags.aligned)


def _parameters(arguments: Sequence[Argument]) -> list[Any]:
    """The C types that numba's functions take: of an array, its owners, sizes, place, shape and strides."""
    import numpy as np

    types: list[Any] = []
    for argument in arguments:
        if isinstance(argument, Array):
            types += [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
            types += [ctypes.c_int64] * (2 * argument.dimensions)
        else:
            dtype = np.dtype(argument)
            types.append(_NUMBERS[f"{dtype.kind.replace('b', '?')}{dtype.itemsize}"])
    return types


def _values(values: Sequence[Any]) -> list[Any]:
    flat: list[Any] = []
    for value in values:
        if hasattr(value, "flags"):
            place, _ = value.__array_interface__["data"]
            flat += (None, None, value.size, value.itemsize, place, *value.shape, *value.strides)
        else:
            flat.append(int(value))
    return flat


class LinkedFunction:
    """Machine code that can be called, without the interpreter's lock."""

    def __init__(self, code: MachineCode, arguments: Sequence[Argument]) -> None:
        prototype = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, *_parameters(arguments))
        self._symbol, self._is_tuple, self._results = code.symbol, code.is_tuple, Struct(code.results)
        self._function = prototype(_link(code))

    def __call__(self, *values: Any) -> Any:
        results, error = ctypes.create_string_buffer(self._results.size or 1), ctypes.c_void_p()
        status = self._function(ctypes.addressof(results), ctypes.addressof(error), *_values(values))
        if status not in RETURNED:
            raise ArithmeticError(f"{self._symbol} ends with status {status}")
        numbers = self._results.unpack_from(results)
        return numbers if self._is_tuple else numbers[0] if numbers else None


@cache
def _linker() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.create_lljit_compiler()


def _link(code: MachineCode) -> int:
    """Where the code of a function lies in memory from now on."""
    import llvmlite.binding as llvm

    library = llvm.JITLibraryBuilder().add_object_img(code.content).add_current_process().export_symbol(code.symbol)
    if code.calls_crc:
        library.import_symbol(crc_symbol.SYMBOL, crc_symbol.crc_function().address)
    linked = library.link(_linker(), f"rmqtool-{next(_NAMES)}")
    linked.detach()  # it stays until the process ends, which LLVM's own order of taking things apart may not survive
    return int(linked[code.symbol])


def types_of(values: Sequence[Any]) -> tuple[Any, ...]:
    """The types of the values to numba."""
    import numba

    type_of: Any = numba.typeof
    return tuple(type_of(value) for value in values)


def code_of(function: Any, types: Sequence[Any], arguments: Sequence[Argument]) -> MachineCode:
    """The machine code of a function that numba has compiled for some types.

    Raises:
        ValueError: it calls something that only numba knows, or takes its arguments in another way than is known here.
    """
    import llvmlite.binding as llvm
    import numba

    (signature,) = (known for known in function.nopython_signatures if tuple(known.args) == tuple(types))
    module = llvm.parse_assembly(_OWNERS.sub("", function.inspect_llvm(tuple(types))))
    (symbol,) = (one.name.removeprefix("cfunc.") for one in module.functions if one.name.startswith("cfunc."))
    for definition in (*module.functions, *module.global_variables):
        if not definition.is_declaration and definition.name != symbol:
            definition.linkage = "internal"  # so that what only Python calls is left out
    features = llvm.get_host_cpu_features().flatten()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features, opt=3, reloc="pic", codemodel="jitdefault", jit=True
    )
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))
    _check_parameters(module.get_function(symbol), arguments)
    called = {one.name for one in module.functions if one.is_declaration and not one.name.startswith("llvm.")}
    called |= {one.name for one in module.global_variables if one.is_declaration}
    if called - LIBRARY_FUNCTIONS - {crc_symbol.SYMBOL}:
        raise ValueError(f"{symbol} needs {sorted(called)}")
    returned = signature.return_type
    is_tuple = isinstance(returned, numba.types.BaseTuple)
    types_returned = map(numba.types.unliteral, returned if is_tuple else [returned])
    results = "".join(_FORMATS[str(one)] for one in types_returned)
    return MachineCode(symbol, crc_symbol.SYMBOL in called, results, is_tuple, machine.emit_object(module))


def _check_parameters(function: Any, arguments: Sequence[Argument]) -> None:
    """A numba that passes arguments in another way is told by the types and names that the code has for them."""
    types = [ctypes.c_void_p, ctypes.c_void_p, *_parameters(arguments)]
    expected = ["ptr" if one is ctypes.c_void_p else f"i{8 * ctypes.sizeof(one)}" for one in types]
    actual = list(function.arguments)
    if [str(one.type) for one in actual] != expected or [one.name for one in actual[:2]] != ["retptr", "excinfo"]:
        raise ValueError(f"{function.name} takes {[(one.name, str(one.type)) for one in actual]}")
