"""The bundle's file: a tar compressed with zstd, of plain numbered members and a manifest that names them.

Members have numbers instead of the store's paths, and no links, extensions or attributes, so that neither a name nor a
size in a bundle from elsewhere can do anything before the manifest has been checked as a whole.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Final

import msgspec
import zstandard

from rmqtool.errors import RmqtoolError, UnreadableError, WriteError
from rmqtool.evidence.store_copy import CopiedFile, Included
from rmqtool.scan.blocks import last_data_end
from rmqtool.store.source import FileSource, reason

FORMAT: Final = "rmqtool-evidence"
VERSION: Final = 1
MANIFEST: Final = "manifest.json"
ANSWERS: Final = "answers.json"
MAGIC: Final = b"\x28\xb5\x2f\xfd"
"""The first bytes of a file that zstd compressed."""
BLOCK: Final = 512
FILES: Final = "files/"
FILES_MAX: Final = 1_000_000
DEPTH_MAX: Final = 16
TEXT_MAX: Final = 256 << 20
"""Bytes of the manifest, which is taken into memory."""
FILE_SIZE_MAX: Final = 1 << 40
DATA_MAX: Final = 64 << 30
"""Bytes of a bundle after decompression."""
_WINDOW_MAX: Final = 1 << 27
_CHUNK: Final = 1 << 20
_LEVEL: Final = 9


class BundleError(RmqtoolError):
    """A file is no bundle, or one that was damaged or made to do harm."""


@dataclass(frozen=True)
class BundleManifest:
    """What a bundle says of itself.

    Attributes:
        store: where the store lies on its machine.
        broker_version: that a person chose; None where the files show it.
        commitlog_directories, sizes: how the store was opened.
        is_whole: whether the commit log is in it.
        differences: in what the answers from the bundle differ from those about the store; none if they are the same.
        left_out_files: files of the store beyond those that are listed.
        logs: names of the broker's logs in it.
        hides_names: whether names of topics, groups and brokers, and addresses, are replaced.
        verdict: of the store, by `verify`.
        findings: counts by id, of the store.
        files: what is in it of each file.
        properties: of the broker's properties file, those that may be shared; None where there was none.
    """

    made_ms: int
    rmqtool_version: str
    store: str
    is_whole: bool
    is_redacted: bool
    differences: tuple[str, ...]
    verdict: str
    findings: dict[str, int]
    files: tuple[CopiedFile, ...]
    directories: tuple[str, ...]
    broker_version: str | None = None
    commitlog_directories: tuple[str, ...] = ()
    sizes: dict[str, int] = field(default_factory=dict)
    properties: dict[str, str] | None = None
    left_out_files: int = 0
    logs: tuple[str, ...] = ()
    hides_names: bool = False

    @property
    def gives_own_answers(self) -> bool:
        """Whether what is computed from the bundle is what is computed from the store."""
        return self.is_whole and not self.differences


def is_bundle(path: Path) -> bool:
    """Whether a path is a file that zstd compressed; no store is one."""
    try:
        with path.open("rb") as file:
            return path.is_file() and file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def write_bundle(target: Path, root: Path, manifest: BundleManifest, texts: Mapping[str, bytes]) -> None:
    """Write a bundle that was not there before; where that fails, nothing is left.

    Args:
        root: the copy of the store.
        texts: further members by name, for people.

    Raises:
        WriteError: it cannot be written.
    """
    try:
        with target.open("xb") as output:
            try:
                _write_members(output, root, manifest, texts)
            except BaseException:
                target.unlink(missing_ok=True)
                raise
    except OSError as error:
        raise WriteError(f"{target}: {reason(error)}") from error


def _write_members(output: IO[bytes], root: Path, manifest: BundleManifest, texts: Mapping[str, bytes]) -> None:
    with (
        zstandard.ZstdCompressor(level=_LEVEL).stream_writer(output, closefd=False) as compressor,
        tarfile.open(fileobj=compressor, mode="w|", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for name, text in texts.items():
            _add(archive, name, text)
        for number, file in enumerate(manifest.files):
            _add_file(archive, f"{FILES}{number}", root, file)
        content = {"format": FORMAT, "version": VERSION, **asdict(manifest)}
        _add(archive, MANIFEST, json.dumps(content, indent=1).encode())


def unpack(bundle: Path, target: Path, data_max: int = DATA_MAX) -> tuple[BundleManifest, bytes]:
    """Unpack the store of a bundle into an empty directory, if the bundle has all of it.

    Returns:
        The manifest, checked, and the recorded answers as they are in the bundle.

    Raises:
        BundleError: it is none, is damaged, is larger than allowed, or names paths that no store has.
        WriteError: the directory cannot be written.
    """
    parts = target / "parts"
    root = target / "store"
    try:
        parts.mkdir()
        root.mkdir()
        with _decompressed(bundle, data_max) as stream:
            manifest, answers = _read_members(stream, parts)
        _check(manifest)
        if not manifest.is_whole:
            return manifest, answers
        for directory in manifest.directories:
            (root / directory).mkdir(parents=True, exist_ok=True)
        for number, file in enumerate(manifest.files):
            _settle(parts / str(number), root / file.path, file)
    except zstandard.ZstdError as error:
        raise BundleError(f"{bundle}: damaged: {error}") from error
    except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise BundleError(f"{bundle}: one path is a file and a directory, or there twice") from error
    except (OSError, OverflowError) as error:
        raise WriteError(f"{target}: {reason(error) if isinstance(error, OSError) else error}") from error
    except BundleError as error:
        raise BundleError(f"{bundle}: {error}") from error
    return manifest, answers


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    archive.addfile(info, io.BytesIO(content))


def _add_file(archive: tarfile.TarFile, name: str, root: Path, file: CopiedFile) -> None:
    """Add the bytes of a file up to its last one that is not zero; its ranges one after the other."""
    path = root / file.path
    if file.included is Included.RANGES:
        with path.open("rb") as content:
            _add(archive, name, b"".join(os.pread(content.fileno(), size, at) for at, size in file.ranges))
    if file.included not in (Included.WHOLE, Included.REDACTED):
        return
    with FileSource.open(path) as source:
        length = last_data_end(source, 0, source.size)
    if length:
        info = tarfile.TarInfo(name)
        info.size = length
        with path.open("rb") as content:
            archive.addfile(info, content)


class _MemberStream:
    """What a bundle decompresses to, counted."""

    def __init__(self, source: IO[bytes], limit: int) -> None:
        self._source = source
        self._left = limit

    def read(self, length: int) -> bytes:
        """So many bytes, at most `_CHUNK`.

        Raises:
            BundleError: it ends before, or is larger than allowed.
        """
        content = b""
        while len(content) < length:
            part = self._source.read(length - len(content))
            if not part:
                raise BundleError("cut off")
            content += part
        self._left -= length
        if self._left < 0:
            raise BundleError("larger than allowed after decompression")
        return content

    def chunks(self, length: int) -> Iterator[bytes]:
        """The next bytes, and the padding after them read too."""
        for start in range(0, length, _CHUNK):
            yield self.read(min(_CHUNK, length - start))
        self.read(-length % BLOCK)


@contextmanager
def _decompressed(bundle: Path, limit: int) -> Iterator[_MemberStream]:
    try:
        file = bundle.open("rb")
    except OSError as error:
        raise UnreadableError(f"{bundle}: {reason(error)}") from error
    with file, zstandard.ZstdDecompressor(max_window_size=_WINDOW_MAX).stream_reader(file) as reader:
        yield _MemberStream(reader, limit)


def _read_members(stream: _MemberStream, parts: Path) -> tuple[BundleManifest, bytes]:
    """Write the numbered members into a directory; the manifest, which is the last member, and the answers."""
    names: set[str] = set()
    answers = b""
    while len(names) <= FILES_MAX:
        try:
            header = tarfile.TarInfo.frombuf(stream.read(BLOCK), "utf-8", "strict")
        except tarfile.HeaderError as error:
            raise BundleError(f"not a bundle, or damaged: {error}") from error
        if header.type != tarfile.REGTYPE or header.size < 0:
            raise BundleError("has a member that is not a plain file")
        if header.name in names:
            raise BundleError(f"has the member {header.name!r} twice")
        names.add(header.name)
        if header.name == MANIFEST:
            return _parsed_manifest(stream, header.size), answers
        number = header.name.removeprefix(FILES)
        if header.name.startswith(FILES) and number.isascii() and number.isdigit() and number == str(int(number[:9])):
            with (parts / number).open("xb", buffering=0) as file:
                for chunk in stream.chunks(header.size):
                    file.seek(len(chunk), os.SEEK_CUR) if not any(chunk) else file.write(chunk)
        elif header.name == ANSWERS and header.size <= TEXT_MAX:
            answers = b"".join(stream.chunks(header.size))
        else:
            for _ in stream.chunks(header.size):
                pass
    raise BundleError("has too many members")


def _parsed_manifest(stream: _MemberStream, size: int) -> BundleManifest:
    if size > TEXT_MAX:
        raise BundleError("has a manifest larger than allowed")
    try:
        manifest = json.loads(b"".join(stream.chunks(size)))
    except (ValueError, RecursionError) as error:
        raise BundleError("has a manifest that is not JSON") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise BundleError("not a bundle of rmqtool")
    if manifest.get("version") != VERSION:
        raise BundleError(f"a bundle of version {manifest.get('version')!r}; this rmqtool reads version {VERSION}")
    try:
        return msgspec.convert(manifest, BundleManifest)
    except msgspec.ValidationError as error:
        raise BundleError(f"has a manifest with a wrong field: {error}") from error


def _check(manifest: BundleManifest) -> None:
    """Refuse paths that a store in a directory of its own does not have."""
    paths = [file.path for file in manifest.files]
    if len(paths) != len(set(paths)) or len(paths) > FILES_MAX or len(manifest.directories) > FILES_MAX:
        raise BundleError("names a file twice, or too many files")
    for path in (*paths, *manifest.directories, *manifest.commitlog_directories):
        parts = path.split("/")
        is_plain = all(part not in ("", ".", "..") and len(os.fsencode(part)) <= 255 for part in parts)
        if not is_plain or len(parts) > DEPTH_MAX or "\0" in path:
            raise BundleError(f"names a path that no store has: {path!r}")
    if any(not 0 <= file.size <= FILE_SIZE_MAX for file in manifest.files):
        raise BundleError("names a file larger than allowed")


def _settle(part: Path, path: Path, file: CopiedFile) -> None:
    """Move a member to its place, with the size and time of the file; one without a member is zeros."""
    if file.included is Included.NOT_A_FILE:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        raise BundleError(f"names a path twice: {file.path!r}")
    if part.exists():
        if part.stat().st_size > file.size:
            raise BundleError(f"holds more of {file.path!r} than its size")
        part.rename(path)
    else:
        path.touch()
    os.truncate(path, file.size)
    os.utime(path, ns=(file.mtime_ns, file.mtime_ns))
