"""`rmqtool --compile`: compiles what commands would compile at their first run or at each, as a step of an install."""

from __future__ import annotations

import compileall
import sys
from importlib import import_module
from pathlib import Path
from typing import Final

import rmqtool
from rmqtool.commands.command_list import COMMANDS
from rmqtool.errors import UnsupportedError
from rmqtool.scan.compiled import is_available, load_kernel
from rmqtool.scan.kernels.code_cache import code_folder

_PACKAGE: Final = Path(rmqtool.__file__).parent


def compile_kernels() -> Path:
    """Compile every kernel; the folder that keeps the code. UnsupportedError where nothing can be compiled or kept."""
    if not is_available():
        raise UnsupportedError("nothing can be compiled here: the plain reader does all the work")
    folder = code_folder()
    if folder is None:
        raise UnsupportedError("no folder can keep what is compiled: none can be written to by its user alone")
    for path in _PACKAGE.rglob("*kernel.py"):
        load_kernel(".".join(("rmqtool", *path.relative_to(_PACKAGE).with_suffix("").parts)))
    from rmqtool.scan.kernels.jit import KERNELS

    for kernel in KERNELS:
        kernel.load()
    # The bytecode of all that commands import: some installers leave it to the first run, some settings to each. A
    # folder that cannot be written to stays as it is.
    for target, _help in COMMANDS.values():
        import_module(f"rmqtool.commands.{target.partition(':')[0]}")
    for module in tuple(sys.modules.values()):
        spec = getattr(module, "__spec__", None)
        if spec is not None and spec.has_location and spec.cached is not None:
            compileall.compile_file(str(spec.origin), quiet=2)
    return folder
