"""Unpacks the wheels for the Python that runs, once, and runs rmqtool from there.

Compiled modules cannot be loaded out of an archive. They go into the user's cache; where that cannot be written,
into a temporary directory that is removed at the end of the run.
"""

from __future__ import annotations

import atexit
import os
import shutil
import stat
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

GLIBC = (2, 28)
"""What the wheels need at least."""


def run(archive: str, contents: dict[str, Any]) -> NoReturn:
    """Unpack if need be, and do what the command line says."""
    try:
        folder = unpacked(archive, contents)
    except KeyboardInterrupt:
        sys.exit(130)
    installed = {name for name in sys.path if Path(name).name in {"site-packages", "dist-packages"}}
    # What the host has installed for its own programs stays out: its numpy may be another one.
    sys.path[:] = [str(folder), *(name for name in sys.path if name not in {*installed, archive})]
    os.environ |= {"PYTHONPATH": str(folder), "PYTHONNOUSERSITE": "1"}  # for processes that rmqtool starts
    os.environ.pop("RMQTOOL_STARTED_BY", None)
    sys.argv[0] = "rmqtool"
    from rmqtool.__main__ import main

    main()
    sys.exit()


def unpacked(archive: str, contents: dict[str, Any]) -> Path:
    """The directory with the unpacked wheels."""
    target = f"{sys.version_info[0]}.{sys.version_info[1]}-{os.uname().machine}"
    wheels = contents["targets"][target]
    name = f"{contents['digest']}-{target}-{os.geteuid()}"  # users of one directory do not run each other's code
    kept = list(kept_places())
    for place in kept:
        if is_ours(place / name):
            return place / name
    check_libc()
    size = unpacked_size(archive, wheels)
    reasons = []
    for place, stays in [*((place, True) for place in kept), *((place, False) for place in temporary_places())]:
        try:
            if stays:
                place.mkdir(mode=0o700, parents=True, exist_ok=True)
            check_place(place, size, stays=stays)
            return unpack(archive, wheels, place, name if stays else None)
        except OSError as error:
            reasons.append(f"{place}: {error.strerror or error}")
    raise failure(
        f"no directory to unpack into, with room for {size / 1e6:.0f} MB ({'; '.join(reasons)}). "
        "Name one: RMQTOOL_UNPACK=DIRECTORY rmqtool ..."
    )


def kept_places() -> Iterator[Path]:
    """Where the unpacked wheels stay for the next run."""
    named = os.environ.get("RMQTOOL_UNPACK")
    if named:
        yield Path(named).absolute()
        return
    cache = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))  # noqa: PTH111 - Path raises without a home
    if cache.is_absolute():
        yield cache / "rmqtool-zipapp"


def temporary_places() -> Iterator[Path]:
    """Where they can be for one run."""
    if not os.environ.get("RMQTOOL_UNPACK"):
        names = (os.environ.get("TMPDIR", ""), "/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - each run makes its own
        yield from (Path(name) for name in dict.fromkeys(names) if name.startswith("/"))


def is_ours(folder: Path) -> bool:
    """Whether a directory is there and nobody else may write to it, for what is in it is run."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    others = stat.S_IWGRP | stat.S_IWOTH
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & others


def is_shared_safely(place: Path) -> bool:
    """Whether a directory is one like /tmp, where a user cannot replace what another one has made."""
    status = place.lstat()
    return bool(status.st_mode & stat.S_ISVTX) and status.st_uid in {0, os.geteuid()}


def check_place(place: Path, size: int, *, stays: bool) -> None:
    """Raise OSError where code cannot be kept or run."""
    if stays and not (is_ours(place) or is_shared_safely(place)):
        raise OSError("another user may write to it")
    system = os.statvfs(place)
    if system.f_flag & os.ST_NOEXEC:
        raise OSError("mounted noexec")
    if system.f_bavail * system.f_frsize < size:
        raise OSError("no space left")


def unpack(archive: str, wheels: list[str], place: Path, name: str | None) -> Path:
    """Write the wheels' modules below a place: under this name once all are there, or for this run only."""
    folder = Path(tempfile.mkdtemp(prefix=".unpacking-" if name else "rmqtool-", dir=place))
    if name is None:
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    try:
        for wheel in opened(archive, wheels):
            wheel.extractall(folder, [member for member in wheel.namelist() if ".data/" not in member])
        if name is None:
            return folder
        if not is_ours(place / name):
            folder.rename(place / name)
    except OSError:
        if name and is_ours(place / name):  # another process was faster
            return place / name
        raise
    finally:
        if name:
            shutil.rmtree(folder, ignore_errors=True)
    return place / name


def unpacked_size(archive: str, wheels: list[str]) -> int:
    """Bytes of all modules, with a fifth more for blocks and bytecode."""
    return sum(member.file_size for wheel in opened(archive, wheels) for member in wheel.infolist()) * 6 // 5


def opened(archive: str, wheels: list[str]) -> Iterator[zipfile.ZipFile]:
    """The wheels, which the file has as they are."""
    with zipfile.ZipFile(archive) as outer:
        for name in wheels:
            with outer.open(name) as stream, zipfile.ZipFile(stream) as wheel:
                yield wheel


def check_libc() -> None:
    """Say what the host lacks, instead of an ImportError later."""
    try:
        text = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        text = ""
    numbers = text.rpartition(" ")[2].split(".")
    if not text.startswith("glibc") or tuple(map(int, numbers[:2])) < GLIBC:
        raise failure(
            f"this file needs glibc {GLIBC[0]}.{GLIBC[1]} or newer; this system has {text or 'another C library'}"
        )


def failure(text: str) -> SystemExit:
    """The end of a run that could not be done, as every command of rmqtool ends."""
    sys.stderr.write(f"rmqtool: {text}\n")
    return SystemExit(4)
