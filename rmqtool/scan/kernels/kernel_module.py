"""A module of compiled functions that is not imported where their machine code is kept from an earlier run.

It is called like the module itself. Which code of a function is meant, the types of the arguments tell, as in numba.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from typing import Any

from rmqtool.scan.kernels import crc_symbol
from rmqtool.scan.kernels.code_folder import CodeFolder
from rmqtool.scan.kernels.compile_notice import ON_COMPILE
from rmqtool.scan.kernels.machine_code import Argument, LinkedFunction, MachineCode, arguments_of, code_of, types_of


class KernelModule:
    """The functions of a module, each by its name.

    Raises:
        Exception: neither is anything kept, nor can anything be compiled here.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.folder = CodeFolder(name)
        if not self.folder.is_filled:
            self.module()

    def __getattr__(self, function_name: str) -> KernelFunction:
        function = KernelFunction(self, function_name)
        setattr(self, function_name, function)
        return function

    def module(self) -> Any:
        """The module itself, with numba; what it calls by name is there before anything of it is compiled."""
        import numba  # noqa: F401

        crc_symbol.register()
        return importlib.import_module(self._name)


class KernelFunction:
    """A function of a module.

    Attributes:
        compiled: for how many types of arguments this process has compiled it.
    """

    def __init__(self, module: KernelModule, name: str) -> None:
        self._module, self._name, self._lock = module, name, Lock()
        self._functions: dict[tuple[Argument, ...], Callable[..., Any]] = {}
        self.compiled = 0

    def __call__(self, *values: Any) -> Any:
        arguments = arguments_of(values)
        function = self._functions.get(arguments)
        if function is None:
            with self._lock:
                function = self._functions.get(arguments) or self._kept(arguments) or self._new(values, arguments)
                self._functions[arguments] = function
        return function(*values)

    def _kept(self, arguments: tuple[Argument, ...]) -> Callable[..., Any] | None:
        code = self._module.folder.load(self._name, arguments)
        return _linked(code, arguments) if code is not None else None

    def _new(self, values: tuple[Any, ...], arguments: tuple[Argument, ...]) -> Callable[..., Any]:
        """The function compiled, and kept; numba's own where its code cannot be taken out of it."""
        while ON_COMPILE:
            ON_COMPILE.pop()()
        function = getattr(self._module.module(), self._name)
        self.compiled += 1
        types = types_of(values)
        function.compile(types)
        try:
            code = code_of(function, types, arguments)
        except Exception:  # noqa: BLE001  a numba of other habits: what it compiles is right, but cannot be kept
            return function  # type: ignore[no-any-return]
        linked = _linked(code, arguments)
        if linked is not None:
            self._module.folder.keep(self._name, arguments, code)
        return linked or function


def _linked(code: MachineCode, arguments: tuple[Argument, ...]) -> LinkedFunction | None:
    with suppress(RuntimeError):  # LLVM cannot link it here
        return LinkedFunction(code, arguments)
    return None
