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
_CALLED: Final = "rmqtool_call"
"""The function that takes one word for each argument: a number, or where the object of an array lies."""
_ARRAY: Final = object.__basicsize__
"""Where numpy's own part of an array's object begins: data, number of dimensions, shape, strides (`PyArrayObject`)."""
_OWNERS: Final = re.compile(r"^ *(tail )?call void @NRT_(in|de)cref\(.*$", re.MULTILINE)
"""Numba counts who owns an array; those that are given here have no owner that it knows."""
_SYMBOL: Final = re.compile(r'^define .*@"?cfunc\.([^"(]+)"?\(', re.MULTILINE)
_NAMES: Final = count()


Argument = tuple[Any, int, bool, bool, bool, bool] | type
"""What code depends on in an argument. Of an array: its dtype, how many dimensions it has, and whether it is contiguous
in the order of C, or of Fortran, writeable and aligned; of a number: its type."""


class MachineCode(NamedTuple):
    """A compiled function.

    Attributes:
        results: a letter of `struct` for each number that it returns.
        is_tuple: whether it returns several numbers.
    """

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
    return value.dtype, value.ndim, flags.c_contiguous, flags.f_contiguous, flags.writeable, flags.aligned


def _parameters(argument: Argument) -> list[str]:
    """What numba's functions take for an argument: of an array, its owners, sizes, data, shape and strides."""
    if isinstance(argument, tuple):
        return ["ptr", "ptr", "i64", "i64", "ptr", *["i64"] * (2 * argument[1])]
    return [f"i{8 * _dtype(argument).itemsize}"]


def _dtype(argument: Any) -> Any:
    import numpy as np

    return np.dtype(argument)


class LinkedFunction:
    """Machine code that can be called, without the interpreter's lock."""

    def __init__(self, code: MachineCode, arguments: Sequence[Argument]) -> None:
        prototype = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        self._is_tuple, self._results = code.is_tuple, Struct(code.results)
        self._are_arrays = [isinstance(argument, tuple) for argument in arguments]
        self._words = Struct(f"{len(arguments)}q")
        self._function = prototype(_link(code))

    def __call__(self, *values: Any) -> Any:
        results, error = ctypes.create_string_buffer(self._results.size or 1), ctypes.create_string_buffer(8)
        pairs = zip(values, self._are_arrays, strict=True)
        words = self._words.pack(*[id(value) if is_array else value for value, is_array in pairs])
        status = self._function(results, error, words)
        if status not in RETURNED:
            raise ArithmeticError(f"a compiled function ends with status {status}")
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

    library = llvm.JITLibraryBuilder().add_object_img(code.content).add_current_process().export_symbol(_CALLED)
    if code.calls_crc:
        library.import_symbol(crc_symbol.SYMBOL, crc_symbol.crc_function().address)
    linked = library.link(_linker(), f"rmqtool-{next(_NAMES)}")
    linked.detach()  # it stays until the process ends, which LLVM's own order of taking things apart may not survive
    return int(linked[_CALLED])


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
    assembly = function.inspect_llvm(tuple(types))
    (symbol,) = _SYMBOL.findall(assembly)
    module = llvm.parse_assembly(_OWNERS.sub("", assembly) + _caller(symbol, arguments))
    _check_parameters(module.get_function(symbol), arguments)
    for definition in (*module.functions, *module.global_variables):
        if not definition.is_declaration and definition.name != _CALLED:
            definition.linkage = "internal"  # so that what only Python calls is left out
    features = llvm.get_host_cpu_features().flatten()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features, opt=3, reloc="pic", codemodel="jitdefault", jit=True
    )
    passes = llvm.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))
    called = {one.name for one in module.functions if one.is_declaration and not one.name.startswith("llvm.")}
    called |= {one.name for one in module.global_variables if one.is_declaration}
    if called - LIBRARY_FUNCTIONS - {crc_symbol.SYMBOL}:
        raise ValueError(f"{symbol} needs {sorted(called)}")
    returned = signature.return_type
    is_tuple = isinstance(returned, numba.types.BaseTuple)
    types_returned = map(numba.types.unliteral, returned if is_tuple else [returned])
    results = "".join(_FORMATS[str(one)] for one in types_returned)
    return MachineCode(crc_symbol.SYMBOL in called, results, is_tuple, machine.emit_object(module))


def _caller(symbol: str, arguments: Sequence[Argument]) -> str:
    """A function that calls numba's with what it takes; Python would need longer to put that together."""
    lines: list[str] = []
    parameters = ["ptr %results", "ptr %error"]
    for number, argument in enumerate(arguments):
        lines.append(f"%word{number} = getelementptr i64, ptr %words, i64 {number}")
        if isinstance(argument, tuple):
            lines.append(f"%object{number} = load ptr, ptr %word{number}")
            parameters += _of_array(number, argument, lines)
        else:
            (kind,) = _parameters(argument)
            lines.append(f"%number{number} = load {kind}, ptr %word{number}")  # its low bytes come first
            parameters.append(f"{kind} %number{number}")
    called = f'%status = call i32 @"{symbol}"({", ".join(parameters)})'
    body = "\n".join((*lines, called, "ret i32 %status"))
    return f"\ndefine i32 @{_CALLED}(ptr %results, ptr %error, ptr %words) {{\n{body}\n}}\n"


def _of_array(number: int, argument: tuple[Any, int, bool, bool, bool, bool], lines: list[str]) -> list[str]:
    """The parameters of an array, whose fields the lines load from its object."""
    for name, position in {"data": _ARRAY, "shape": _ARRAY + 16, "strides": _ARRAY + 24}.items():
        lines += [
            f"%{name}{number}.at = getelementptr i8, ptr %object{number}, i64 {position}",
            f"%{name}{number} = load ptr, ptr %{name}{number}.at",
        ]
    sizes, count = [], "1"
    for name in ("shape", "strides"):
        for dimension in range(argument[1]):
            size = f"%{name}{number}.{dimension}"
            lines += [
                f"{size}.at = getelementptr i64, ptr %{name}{number}, i64 {dimension}",
                f"{size} = load i64, ptr {size}.at",
            ]
            sizes.append(f"i64 {size}")
            if name == "shape":
                lines.append(f"%count{number}.{dimension} = mul i64 {count}, {size}")
                count = f"%count{number}.{dimension}"
    return ["ptr null", "ptr null", f"i64 {count}", f"i64 {argument[0].itemsize}", f"ptr %data{number}", *sizes]


def _check_parameters(function: Any, arguments: Sequence[Argument]) -> None:
    """Refuse code of a numba that passes arguments in another way: its parameters have other types or names.

    Raises:
        ValueError: the parameters are not those that are expected.
    """
    expected = ["ptr", "ptr", *(kind for argument in arguments for kind in _parameters(argument))]
    actual = list(function.arguments)
    if [str(one.type) for one in actual] != expected or [one.name for one in actual[:2]] != ["retptr", "excinfo"]:
        raise ValueError(f"{function.name} takes {[(one.name, str(one.type)) for one in actual]}")
