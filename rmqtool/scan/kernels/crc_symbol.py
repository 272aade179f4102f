"""Gives the kernel its CRC-32 under one fixed name: ISA-L's function, else zlib's, else a compiled one of our own.

A kernel that holds a function pointer could not be kept; one that calls an external symbol by name can. The symbol
must be registered before numba compiles a kernel, which does not ask whether it exists.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
from typing import Any, Final, NamedTuple

SYMBOL: Final = "rmqtool_crc32"
_CANDIDATES: Final = (("isal.isal_zlib", "crc32_gzip_refl"), ("zlib", "crc32"))
"""(extension module, exported function): both take (previous CRC, address, length) in registers of 64 bits."""


class CrcFunction(NamedTuple):
    """A CRC-32 function in memory."""

    address: int
    source: str
    """What it is, for a person."""
    owner: Any
    """Must live as long as the address is used."""


@functools.cache
def crc_function() -> CrcFunction:
    """What the symbol stands for."""
    return library_function() or own_function()


@functools.cache
def register() -> None:
    """Register the symbol with LLVM, for what numba compiles."""
    import llvmlite.binding

    llvmlite.binding.add_symbol(SYMBOL, crc_function().address)


def library_function() -> CrcFunction | None:
    """The first function of the libraries at hand that computes a known CRC."""
    for module_name, function_name in _CANDIDATES:
        try:
            module = importlib.import_module(module_name)
            library = ctypes.CDLL(module.__file__)
            function = getattr(library, function_name)
        except (ImportError, OSError, AttributeError, TypeError):
            continue  # no wheel, linked statically, or not exported: the next one
        address = ctypes.cast(function, ctypes.c_void_p).value
        if address and _is_right(address):
            return CrcFunction(address, f"{module_name}:{function_name}", library)
    return None


def _is_right(address: int) -> bool:
    prototype = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_uint64)
    value: int = prototype(address)(0, b"123456789", 9)
    return value & 0xFFFFFFFF == 0xCBF43926


def own_function() -> CrcFunction:
    """A table-driven CRC compiled here, eight bytes a step."""
    import numba
    import numpy

    tables: Any = numpy.zeros((8, 256), numpy.uint32)
    for value in range(256):
        code = value
        for _ in range(8):
            code = code >> 1 ^ (0xEDB88320 if code & 1 else 0)
        tables[0, value] = code
    for row in range(1, 8):
        tables[row] = tables[0][tables[row - 1] & 0xFF] ^ tables[row - 1] >> 8

    @numba.cfunc("uint64(uint64, CPointer(uint8), uint64)")
    def slicing_crc(previous: Any, data: Any, length: Any) -> Any:
        code = numpy.uint32(~numpy.uint32(previous))
        at = numpy.uint64(0)
        while at + numpy.uint64(8) <= length:
            low = code ^ (
                numpy.uint32(data[at])
                | numpy.uint32(data[at + numpy.uint64(1)]) << numpy.uint32(8)
                | numpy.uint32(data[at + numpy.uint64(2)]) << numpy.uint32(16)
                | numpy.uint32(data[at + numpy.uint64(3)]) << numpy.uint32(24)
            )
            code = (
                tables[7, low & numpy.uint32(0xFF)]
                ^ tables[6, low >> numpy.uint32(8) & numpy.uint32(0xFF)]
                ^ tables[5, low >> numpy.uint32(16) & numpy.uint32(0xFF)]
                ^ tables[4, low >> numpy.uint32(24)]
                ^ tables[3, data[at + numpy.uint64(4)]]
                ^ tables[2, data[at + numpy.uint64(5)]]
                ^ tables[1, data[at + numpy.uint64(6)]]
                ^ tables[0, data[at + numpy.uint64(7)]]
            )
            at += numpy.uint64(8)
        while at < length:
            code = tables[0, (code ^ numpy.uint32(data[at])) & numpy.uint32(0xFF)] ^ code >> numpy.uint32(8)
            at += numpy.uint64(1)
        return numpy.uint64(numpy.uint32(~code))

    function: Any = slicing_crc
    return CrcFunction(function.address, "own", function)
