"""Files of an export's target: on a disk that driver and executors share, or wherever Spark can write by a URL.

Spark's own file systems are asked for a URL, since its tasks write through them, with the settings of the session.
"""

from __future__ import annotations

import hashlib
import shutil
import stat
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from rmqtool.errors import UsageError, WriteError
from rmqtool.store.location import is_url
from rmqtool.store.sink import reported

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_Seen = TypeVar("_Seen")
_HASH_BLOCK: Final = 1 << 20
_CONDITIONAL: Final = "fs.option.create.conditional.overwrite"
"""Capability of an object store's file system, and option with which it creates a file only where none is."""
_S3A: Final = "org.apache.hadoop.fs.s3a.S3AFileSystem"


class TargetFiles(Protocol):
    """A directory tree. Places are whole paths or URLs without a slash at their end.

    Each method raises WriteError where the file system does not do it.
    """

    def exists(self, place: str) -> bool:
        """True if there is a file or a directory."""

    def sizes(self, folder: str) -> dict[str, int]:
        """Bytes of each file below a directory, by its path from there; none where there is no directory."""

    def read(self, place: str) -> str | None:
        """The text of a file; None where there is none."""

    def create(self, place: str, text: str) -> bool:
        """Write a file, whole or not at all; False if it is there already. Of two callers one creates it."""

    def move(self, source: str, target: str) -> None:
        """Give a file or directory another name, at which nothing is; directories above are made."""

    def remove(self, place: str) -> None:
        """Remove a file or a directory with all that is in it; or do nothing where nothing is."""

    def remove_if_empty(self, folder: str) -> None:
        """Remove a directory in which nothing is."""

    def hashes(self, folder: str, names: Sequence[str]) -> dict[str, str]:
        """SHA-256 of files below a directory, in hexadecimal, by their names; computed by tasks."""

    def spark_path(self, place: str) -> str:
        """The path as Spark writes it."""


def local_target(text: str) -> Path | None:
    """The path of a target on this machine's file systems; None for a URL of another one.

    Raises:
        UsageError: the URL has options.
    """
    if not is_url(text):
        return Path(text).absolute()
    if "?" in text or "#" in text:
        raise UsageError("--to: a URL has no options here; settings of Spark are: --conf spark.hadoop.fs.s3a....")
    if text.lower().startswith("file://"):
        return Path(text[len("file://") :]).absolute()
    return None


@dataclass(frozen=True)
class LocalFiles:
    """On a file system of this machine; without a session hashes are computed here."""

    session: SparkSession | None = None

    def exists(self, place: str) -> bool:
        return Path(place).exists()

    def sizes(self, folder: str) -> dict[str, int]:
        root, sizes = Path(folder), {}
        with reported(folder):
            for path in root.rglob("*"):
                with suppress(FileNotFoundError):  # another run removed it since it was listed
                    status = path.stat()
                    if stat.S_ISREG(status.st_mode):
                        sizes[str(path.relative_to(root))] = status.st_size
        return sizes

    def read(self, place: str) -> str | None:
        try:
            return Path(place).read_text("utf-8")
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise WriteError(f"{place}: {error}") from error

    def create(self, place: str, text: str) -> bool:
        path = Path(place)
        beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
        with reported(place):
            while True:
                path.parent.mkdir(parents=True, exist_ok=True)
                try:
                    beside.write_text(text, "utf-8")
                    break
                except FileNotFoundError:
                    continue  # another run removed the empty directory
            try:
                path.hardlink_to(beside)
            except FileExistsError:
                return False
            finally:
                beside.unlink()
        return True

    def move(self, source: str, target: str) -> None:
        with reported(target):
            Path(target).parent.mkdir(parents=True, exist_ok=True)
            Path(source).rename(target)

    def remove(self, place: str) -> None:
        path = Path(place)
        with reported(place):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def remove_if_empty(self, folder: str) -> None:
        with suppress(OSError):
            Path(folder).rmdir()

    def hashes(self, folder: str, names: Sequence[str]) -> dict[str, str]:
        paths = [str(Path(folder) / name) for name in names]
        if self.session is None or not paths:
            return dict(zip(names, map(_hash_of, paths), strict=True))
        context = self.session.sparkContext
        tasks = min(len(paths), 4 * context.defaultParallelism)
        return dict(zip(names, context.parallelize(paths, tasks).map(_hash_of).collect(), strict=True))

    def spark_path(self, place: str) -> str:
        return f"file://{place}"


@dataclass(frozen=True)
class HadoopFiles:
    """Wherever a file system of Hadoop leads that the session has."""

    session: Any

    @classmethod
    def open(cls, session: SparkSession, url: str) -> HadoopFiles:
        """The file system of a URL.

        Raises:
            UsageError: Spark has none for it.
        """
        from py4j.protocol import Py4JError

        files = cls(session)
        scheme = url.partition("://")[0].lower()
        java, settings = files._java, files._settings
        try:
            if scheme == "s3" and settings.get("fs.s3.impl") is None:
                settings.set("fs.s3.impl", _S3A)  # Hadoop itself knows it as s3a only
            file_system = java.org.apache.hadoop.fs.Path(url).getFileSystem(settings)
            if file_system.getScheme() in ("http", "https"):
                raise UsageError(f"--to {url}: Spark cannot write there: it reads {scheme} only")
        except Py4JError as error:
            package = f"org.apache.hadoop:hadoop-aws:{java.org.apache.hadoop.util.VersionInfo.getVersion()}"
            hint = f"; for S3 add --conf spark.jars.packages={package}" if scheme in ("s3", "s3a") else ""
            raise UsageError(f"--to {url}: Spark cannot write there: {_java_reason(error)}{hint}") from error
        return files

    def exists(self, place: str) -> bool:
        with _java_told(place):
            path, file_system = self._at(place)
            return bool(file_system.exists(path))

    def sizes(self, folder: str) -> dict[str, int]:
        return self._of_what_is_there(folder, self._sizes) or {}

    def _sizes(self, path: Any, file_system: Any) -> dict[str, int]:
        start = len(file_system.makeQualified(path).toString().rstrip("/")) + 1
        listed, sizes = file_system.listFiles(path, True), dict[str, int]()
        while listed.hasNext():
            status = listed.next()
            sizes[status.getPath().toString()[start:]] = int(status.getLen())
        return sizes

    def read(self, place: str) -> str | None:
        return self._of_what_is_there(place, self._text)

    def _text(self, path: Any, file_system: Any) -> str:
        stream = file_system.open(path)
        try:
            return str(self._java.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def _of_what_is_there(self, place: str, look: Callable[[Any, Any], _Seen]) -> _Seen | None:
        """Result of `look` at a path; None where nothing is there, also if another run removes it meanwhile."""
        from py4j.protocol import Py4JError

        try:
            return look(*self._at(place))
        except Py4JError as error:
            if self.exists(place):
                raise WriteError(f"{place}: {_java_reason(error)}") from error
        return None

    def create(self, place: str, text: str) -> bool:
        """An object store creates it on a condition; elsewhere a new file is renamed, which replaces nothing."""
        from py4j.protocol import Py4JError

        path, file_system = self._at(place)
        is_conditional = bool(file_system.hasPathCapability(path, _CONDITIONAL))
        target = path if is_conditional else self._at(f"{place}.{uuid.uuid4().hex}.tmp")[0]
        try:
            builder = file_system.createFile(target).recursive().overwrite(False)
            builder = builder.must(_CONDITIONAL, True) if is_conditional else builder
            stream = builder.build()
            stream.write(bytearray(text, "utf-8"))
            stream.close()
            if is_conditional or (not file_system.exists(path) and file_system.rename(target, path)):
                return True
            file_system.delete(target, True)
        except Py4JError as error:
            if not self.exists(place):
                raise WriteError(f"{place}: {_java_reason(error)}") from error
        return self.read(place) == text  # a request that is sent again is refused after the first one was carried out

    def move(self, source: str, target: str) -> None:
        with _java_told(target):
            path, file_system = self._at(target)
            file_system.mkdirs(path.getParent())
            if not file_system.rename(self._at(source)[0], path):
                raise WriteError(f"{target}: cannot be renamed from {source}")

    def remove(self, place: str) -> None:
        with _java_told(place):
            path, file_system = self._at(place)
            file_system.delete(path, True)

    def remove_if_empty(self, folder: str) -> None:
        from py4j.protocol import Py4JError

        with suppress(Py4JError):
            path, file_system = self._at(folder)
            file_system.delete(path, False)

    def hashes(self, folder: str, names: Sequence[str]) -> dict[str, str]:
        """A task reads a file at once: Python's workers have no way to all the places that Spark writes to."""
        from pyspark.sql import functions as f

        if not names:
            return {}
        paths = {self._java.org.apache.hadoop.fs.Path(f"{folder}/{name}").toString(): name for name in names}
        read = self.session.read.format("binaryFile").load(list(paths))
        rows = read.select("path", f.sha2("content", 256).alias("sha256")).collect()
        return {paths[str(row["path"])]: str(row["sha256"]) for row in rows}

    def spark_path(self, place: str) -> str:
        return place

    @property
    def _java(self) -> Any:
        return self.session._jvm  # noqa: SLF001 - pyspark has no other way to Hadoop's file systems

    @property
    def _settings(self) -> Any:
        return self.session._jsc.hadoopConfiguration()  # noqa: SLF001 - see _java

    def _at(self, place: str) -> tuple[Any, Any]:
        path = self._java.org.apache.hadoop.fs.Path(place)
        return path, path.getFileSystem(self._settings)


def data_files(sizes: Mapping[str, int]) -> list[str]:
    """Names of the files that hold rows: neither Spark's marks nor checksums of Hadoop."""
    return sorted(name for name in sizes if not name.rpartition("/")[2].startswith(("_", ".")))


def _hash_of(path: str) -> str:
    digest = hashlib.sha256()
    with Path(path).open("rb") as file:
        while block := file.read(_HASH_BLOCK):
            digest.update(block)
    return digest.hexdigest()


@contextmanager
def _java_told(place: str) -> Iterator[None]:
    from py4j.protocol import Py4JError

    try:
        yield
    except Py4JError as error:
        raise WriteError(f"{place}: {_java_reason(error)}") from error


def _java_reason(error: Any) -> str:
    exception = getattr(error, "java_exception", None)
    text = str(exception.toString() if exception is not None else error).strip()
    return text.splitlines()[0] if text else "failed"
