"""CRC-32 at the speed the machine has: ISA-L where there is a wheel, else zlib."""

from __future__ import annotations

import ctypes
import functools
import importlib
from typing import Any, Final

try:
    from isal.isal_zlib import crc32
except ImportError:  # no wheel for this platform
    from zlib import crc32

__all__ = ["checksum_function", "crc32"]

_EXPORTED: Final = (("isal.isal_zlib", "crc32_gzip_refl"), ("zlib", "crc32"))
"""(extension module, function that it exports): both take (previous CRC, address, length) in registers of 64 bits."""


@functools.cache
def checksum_function() -> Any:
    """The function that kernels take (`kernels.jit.CHECKSUM`): a library's, else our own."""
    from numba import types

    from rmqtool.scan.kernels.jit import CHECKSUM

    class Checksum(types.WrapperAddressProtocol):
        def __init__(self, address: int, source: str, owner: object) -> None:
            self.address, self.source, self._owner = address, source, owner

        def __wrapper_address__(self) -> int:
            return self.address

        def signature(self) -> Any:
            return CHECKSUM.signature

    for module_name, function_name in _EXPORTED:
        try:
            module = importlib.import_module(module_name)
            library = ctypes.CDLL(module.__file__)
            address = int(ctypes.cast(getattr(library, function_name), ctypes.c_void_p).value or 0)
        except (ImportError, OSError, AttributeError, TypeError):
            continue  # no wheel, linked statically, or not exported: the next one
        function = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_uint64)(address)
        if address and function(0, b"123456789", 9) & 0xFFFFFFFF == 0xCBF43926:
            return Checksum(address, f"{module_name}:{function_name}", library)
    from rmqtool.scan.kernels.checksum_kernel import slicing_crc

    return Checksum(int(slicing_crc.address or 0), "own", slicing_crc)
