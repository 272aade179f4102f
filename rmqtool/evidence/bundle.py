"""The bundle's file: a tar compressed with zstd, of plain numbered members and a manifest that names them.

Members have numbers instead of the store's paths, and no links, extensions or attributes, so that neither a name nor a
size in a bundle from elsewhere can do anything before the manifest has been checked as a whole. The manifest has a
digest of every member, and the last member that of the manifest: a bundle is read as it was written, or not at all.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Final

import msgspec
import zstandard

from rmqtool.errors import RmqtoolError, UnreadableError, WriteError
from rmqtool.evidence.store_copy import CopiedFile, Included
from rmqtool.scan.blocks import last_data_end
from rmqtool.store.file_kinds import kind_of
from rmqtool.store.source import FileSource, reason

FORMAT: Final = "rmqtool-evidence"
VERSION: Final = 2
MANIFEST: Final = "manifest.json"
MANIFEST_DIGEST: Final = "manifest.blake2b"
ANSWERS: Final = "answers.json"
MAGIC: Final = b"\x28\xb5\x2f\xfd"
"""The first bytes of a file that zstd compressed."""
BLOCK: Final = 512
FILES: Final = "files/"
FILES_MAX: Final = 1_000_000
DEPTH_MAX: Final = 16
TEXT_MAX: Final = 512 << 20
"""Bytes of the manifest, which is taken into memory."""
FILE_SIZE_MAX: Final = 1 << 40
NAME_MAX: Final = 255
"""Bytes of the name of a file."""
_TIME_MAX_NS: Final = 1 << 62
DATA_MAX: Final = 64 << 30
"""Bytes of a bundle after decompression."""
_WINDOW_MAX: Final = 1 << 27
_CHUNK: Final = 1 << 20
_DIGEST_BYTES: Final = 16
_MEMBERS_MAX: Final = FILES_MAX + 32
"""The files of a store, and other members of a bundle."""
_END_MAX: Final = tarfile.RECORDSIZE + 2 * BLOCK
"""Zeros after the last member: two blocks, and up to the end of a record of tar."""
_LEVEL: Final = 9


class BundleError(RmqtoolError):
    """A file is no bundle, or one that was damaged or made to do harm."""


@dataclass(frozen=True)
class BundleManifest:
    """Manifest of a bundle.

    Attributes:
        store: where the store lies on its machine.
        broker_version: that a person chose; None where the files show it.
        is_whole: whether the commit log is in it.
        differences: in what the answers from the bundle differ from those about the store; none if they are the same.
        left_out_files: files of the store beyond those that are listed.
        logs: names of the broker's logs in it.
        hides_names: whether names of topics, groups and brokers, and addresses, are replaced.
        findings: counts by id, of the store.
        properties: of the broker's properties file, those that may be shared; None where there was none.
        texts: digests of the members that are no files of the store, by name.
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
    properties: dict[str, str] | None = None
    left_out_files: int = 0
    logs: tuple[str, ...] = ()
    hides_names: bool = False
    texts: dict[str, str] = field(default_factory=dict)

    @property
    def gives_own_answers(self) -> bool:
        """True if results from the bundle equal those from the store."""
        return self.is_whole and not self.differences


def is_bundle(path: Path) -> bool:
    """True if a path is a file that zstd compressed; no store is one."""
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
        zstandard.ZstdCompressor(_LEVEL, write_checksum=True).stream_writer(output, closefd=False) as compressor,
        tarfile.open(fileobj=compressor, mode="w|", format=tarfile.USTAR_FORMAT) as archive,
    ):
        digests = {name: _add(archive, name, text) for name, text in texts.items()}
        files = tuple(
            replace(file, digest=_add_file(archive, f"{FILES}{number}", root, file))
            for number, file in enumerate(manifest.files)
        )
        content = {"format": FORMAT, "version": VERSION, **asdict(replace(manifest, files=files, texts=digests))}
        digest = _add(archive, MANIFEST, json.dumps(content, indent=1).encode())
        _add(archive, MANIFEST_DIGEST, digest.encode())


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
        try:
            packed = bundle.open("rb")
        except OSError as error:
            raise UnreadableError(f"{bundle}: {reason(error)}") from error
        decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW_MAX)
        with packed, decompressor.stream_reader(packed, read_across_frames=True) as reader:
            manifest, answers = _read_members(_Members(reader, data_max), parts)
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


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> str:
    """Add a member; return its digest."""
    return _add_stream(archive, name, len(content), io.BytesIO(content))


def _add_file(archive: tarfile.TarFile, name: str, root: Path, file: CopiedFile) -> str:
    """Add a file up to its last byte that is not zero, or its ranges one after the other; return the digest."""
    path = root / file.path
    if file.included is Included.RANGES:
        with path.open("rb") as content:
            return _add(archive, name, b"".join(os.pread(content.fileno(), size, at) for at, size in file.ranges))
    if file.included not in (Included.WHOLE, Included.REDACTED):
        return ""
    with FileSource.open(path) as source:
        length = last_data_end(source, 0, source.size)
    if not length:
        return ""
    with path.open("rb") as content:
        return _add_stream(archive, name, length, content)


def _add_stream(archive: tarfile.TarFile, name: str, length: int, content: IO[bytes]) -> str:
    info = tarfile.TarInfo(name)
    info.size = length
    digested = _Digested(content)
    archive.addfile(info, digested)
    return digested.digest.hexdigest()


class _Digested(io.RawIOBase):
    """A stream whose bytes are digested as they are read."""

    def __init__(self, content: IO[bytes]) -> None:
        self.digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        self._content = content

    def read(self, size: int = -1) -> bytes:
        part = self._content.read(size)
        self.digest.update(part)
        return part


class _Members:
    """Members of a bundle, one after the other, decompressed as they are read.

    Attributes:
        digests: of the members that were read, by name.
    """

    def __init__(self, source: IO[bytes], limit: int) -> None:
        self.digests: dict[str, str] = {}
        self._source = source
        self._left = limit

    def header(self) -> tarfile.TarInfo:
        """The next member, which must be a plain file of a name that none before it had.

        Raises:
            BundleError: it is something else, or no bundle has so many.
        """
        try:
            header = tarfile.TarInfo.frombuf(self._read(BLOCK), "utf-8", "strict")
        except (tarfile.HeaderError, UnicodeError) as error:
            raise BundleError(f"not a bundle, or damaged: {error}") from error
        if header.type != tarfile.REGTYPE or header.size < 0:
            raise BundleError("has a member that is not a plain file")
        if header.name in self.digests:
            raise BundleError(f"has the member {header.name!r} twice")
        if len(self.digests) >= _MEMBERS_MAX:
            raise BundleError("has too many members")
        return header

    def chunks(self, header: tarfile.TarInfo) -> Iterator[bytes]:
        """Content of a member; the padding after it is read too."""
        digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        for start in range(0, header.size, _CHUNK):
            chunk = self._read(min(_CHUNK, header.size - start))
            digest.update(chunk)
            yield chunk
        if any(self._read(-header.size % BLOCK)):
            raise BundleError("has something between two members")
        self.digests[header.name] = digest.hexdigest()

    def text(self, header: tarfile.TarInfo) -> bytes:
        """Content of a member, in memory."""
        if header.size > TEXT_MAX:
            raise BundleError(f"has the member {header.name!r} larger than allowed")
        return b"".join(self.chunks(header))

    def demand_end(self) -> None:
        """Read to the end, so that the checksum of the compression is checked; more data is an error."""
        left = _END_MAX
        while part := self._source.read(_CHUNK):
            left -= len(part)
            if any(part) or left < 0:
                raise BundleError("has something after its last member")

    def _read(self, length: int) -> bytes:
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


def _read_members(members: _Members, parts: Path) -> tuple[BundleManifest, bytes]:
    """Write the numbered members into a directory; return the manifest, which follows them, and the answers.

    Raises:
        BundleError: a member is not the one that the manifest is about.
    """
    answers = b""
    while (header := members.header()).name != MANIFEST:
        number = header.name.removeprefix(FILES)
        if header.name.startswith(FILES) and number.isascii() and number.isdigit() and number == str(int(number[:9])):
            with (parts / number).open("xb", buffering=0) as file:
                for chunk in members.chunks(header):
                    file.seek(len(chunk), os.SEEK_CUR) if not any(chunk) else file.write(chunk)
        elif header.name == ANSWERS:
            answers = members.text(header)
        else:
            for _ in members.chunks(header):
                pass
    contents = dict(members.digests)
    raw = members.text(header)
    last = members.header()
    if last.name != MANIFEST_DIGEST or members.text(last) != members.digests[MANIFEST].encode():
        raise BundleError("damaged: its manifest is not the one that was written")
    members.demand_end()
    manifest = _parsed_manifest(raw)
    listed = {f"{FILES}{number}": file.digest for number, file in enumerate(manifest.files) if file.digest}
    if contents != {**listed, **manifest.texts}:
        raise BundleError("damaged: a member is not the one that was written")
    return manifest, answers


def _parsed_manifest(raw: bytes) -> BundleManifest:
    try:
        manifest = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise BundleError("has a manifest that is not JSON") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise BundleError("not a bundle of rmqtool")
    if manifest.get("version") != VERSION:
        raise BundleError(f"a bundle of version {manifest.get('version')!r}; this rmqtool reads version {VERSION}")
    try:
        return msgspec.convert(manifest, BundleManifest)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise BundleError(f"has a manifest with a wrong field: {error}") from error


def _check(manifest: BundleManifest) -> None:
    """Refuse paths that a store in a directory of its own does not have, and files with content of another kind."""
    paths = [file.path for file in manifest.files]
    if len(paths) != len(set(paths)) or len(paths) > FILES_MAX or len(manifest.directories) > FILES_MAX:
        raise BundleError("names a file twice, or too many files")
    for path in (*paths, *manifest.directories):
        parts = path.split("/")
        is_plain = all(part not in ("", ".", "..") and len(_encoded(part)) <= NAME_MAX for part in parts)
        if not is_plain or len(parts) > DEPTH_MAX or "\0" in path:
            raise BundleError(f"names a path that no store has: {path!r}")
    for file in manifest.files:
        if not 0 <= file.size <= FILE_SIZE_MAX or abs(file.mtime_ns) > _TIME_MAX_NS:
            raise BundleError(f"names a size or time that no file has: {file.path!r}")
        if file.digest and manifest.gives_own_answers and file.kind != kind_of(file.path).value:
            raise BundleError(f"has a file under a path that is not for its kind: {file.path!r}")


def _encoded(text: str) -> bytes:
    """A part of a path in the file system's encoding; too long for any name if it has half of a character."""
    try:
        return os.fsencode(text)
    except UnicodeEncodeError:
        return bytes(NAME_MAX + 1)


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
