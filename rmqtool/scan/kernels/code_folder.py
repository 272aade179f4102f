"""Where machine code of compiled functions is kept: files named for all that the code depends on."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import stat
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

from rmqtool.scan.kernels.machine_code import Argument, LinkedFunction, MachineCode

_DIGEST_SIZE: Final = 32
_ROOT: Final = Path(__file__).parents[3]
_IMPORT: Final = re.compile(r"^from (rmqtool\.\S+) import ([\w, ]+)$", re.MULTILINE)


class CodeFolder:
    """The kept code of one module.

    Attributes:
        is_filled: whether any of its functions is kept.
    """

    def __init__(self, module_name: str) -> None:
        source = _source_digest(module_name)
        self._prefix = f"{module_name.rpartition('.')[2]}.{_host_digest()}-"
        self._name = f"{self._prefix}{source}"
        self._can_keep = source is not None
        self._folders = [folder for folder in _folders() if _is_safe(folder)] if self._can_keep else []
        self.is_filled = any(any(folder.glob(f"{self._name}.*")) for folder in self._folders)

    def load(self, function_name: str, arguments: Sequence[Argument]) -> MachineCode | None:
        """The kept code of a function; None where there is none, or what is there is not what was written."""
        for folder in self._folders:
            with suppress(OSError):
                content = (folder / self._file_name(function_name, arguments)).read_bytes()
                if hashlib.sha256(content[_DIGEST_SIZE:]).digest() == content[:_DIGEST_SIZE]:
                    header, _, code = content[_DIGEST_SIZE:].partition(b"\n")
                    calls_crc, results, is_tuple = json.loads(header)
                    return MachineCode(calls_crc, results, is_tuple, code)
        return None

    def keep(self, function_name: str, arguments: Sequence[Argument], code: MachineCode) -> None:
        """Keep the code of a function in the first folder that can be written to; older code of the module goes."""
        content = json.dumps(code[:-1]).encode() + b"\n" + code.content
        folder = writable_folder()
        if folder is None or not self._can_keep:
            return
        with suppress(OSError):
            for path in folder.glob(f"{self._prefix}*"):
                if not path.name.startswith(f"{self._name}."):
                    path.unlink(missing_ok=True)
            with tempfile.TemporaryDirectory(dir=folder, prefix="new-") as name:  # which a full disk leaves nothing of
                file = Path(name) / "code"
                file.write_bytes(hashlib.sha256(content).digest() + content)
                file.replace(folder / self._file_name(function_name, arguments))

    def _file_name(self, function_name: str, arguments: Sequence[Argument]) -> str:
        return f"{self._name}.{function_name}.{_digest(repr(arguments))}.code"


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


@cache
def _host_digest() -> str:
    """The processor, and what compiles: code of another one may not run, or be called, here."""
    import llvmlite
    import llvmlite.binding as llvm

    numba = importlib.util.find_spec("numba")
    if numba is None or numba.origin is None:
        raise ImportError("there is no numba")
    version = (Path(numba.origin).parent / "_version.py").read_text("utf-8")
    features = llvm.get_host_cpu_features().flatten()
    return _digest(version, llvmlite.__version__, llvm.get_process_triple(), llvm.get_host_cpu_name(), features)


def _source_digest(module_name: str) -> str | None:
    """What a module's code is made of: its source, what it imports of ours, what calls it; None where it has none."""
    try:
        source = _source_of(module_name)
        sources = [source, _source_of(LinkedFunction.__module__)]
        for module, names in _IMPORT.findall(source):
            with suppress(OSError):
                sources.append(_source_of(module))
                continue
            sources += [_source_of(f"{module}.{name}") for name in names.split(", ")]
    except OSError:
        return None
    return _digest(*sources)


def _source_of(module_name: str) -> str:
    """The source of a module of ours, which may lie in an archive."""
    path = _ROOT.joinpath(*module_name.split(".")).with_suffix(".py")
    loader: Any = __spec__ and __spec__.loader
    return str(loader.get_data(str(path)).decode("utf-8"))


def _folders() -> list[Path]:
    """Where code may be kept: beside the package, and in the user's cache."""
    folders = [Path(__file__).parent / "__pycache__"]
    with suppress(RuntimeError):  # no home
        folders.append(Path.home() / ".cache" / "rmqtool")
    return folders


def writable_folder() -> Path | None:
    """The first folder of those in which code can be kept."""
    for folder in _folders():
        with suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if _is_safe(folder):
                tempfile.TemporaryFile(dir=folder).close()
                return folder
    return None


def _is_safe(folder: Path) -> bool:
    """Whether nobody but its user, or root, can write to a folder: what lies there is run."""
    try:
        status = folder.stat()
    except OSError:
        return False
    return status.st_uid in (os.geteuid(), 0) and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
