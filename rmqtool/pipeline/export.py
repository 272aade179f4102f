"""Writes a table into a directory: whole or not at all, with a manifest, and not again where nothing has changed.

Spark writes into a directory beside the target, which takes its place when all of it is there; both lie on one file
system that driver and executors see.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import rmqtool
from rmqtool.errors import RefusedError, UnsupportedError, UsageError, WriteError
from rmqtool.pipeline.enums import Form
from rmqtool.pipeline.options import SourceOptions
from rmqtool.report.names import unknown_name
from rmqtool.store.directory import Store
from rmqtool.store.source import reason

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MANIFEST: Final = "_rmqtool-export.json"
"""Begins with an underscore, so that Spark and others do not take it for data."""
MANIFEST_FORMAT: Final = 1
DERIVED: Final = ("day", "hour")
"""What rows can be partitioned by beside their columns: the date of the store time in UTC, and its hour."""
_HASH_BLOCK: Final = 1 << 20


@dataclass(frozen=True)
class Export:
    """What is to be written where.

    Attributes:
        options: of the data source.
        partition_by: columns, or names of `DERIVED`, that make directories.
    """

    target: Path
    form: Form
    options: Mapping[str, str] = field(default_factory=dict)
    partition_by: tuple[str, ...] = ()

    def request(self) -> dict[str, Any]:
        """What was asked, and of which files: the same request has the same result.

        Raises:
            NotAStoreError, UnreadableError: a path is no store, or may not be read.
        """
        stores = SourceOptions.parse(self.options).stores()
        return {
            "rmqtool": rmqtool.__version__,
            "form": self.form.value,
            "partition_by": list(self.partition_by),
            "options": dict(sorted(self.options.items())),
            "stores": {store.view.label: _fingerprint(store) for store in stores},
        }

    def done_before(self, request: Mapping[str, Any]) -> dict[str, Any] | None:
        """The manifest of the same export that is there already, with all its files.

        Raises:
            RefusedError: the directory holds something else.
        """
        if not self.target.exists():
            return None
        manifest = _read_manifest(self.target)
        if manifest is None:
            if self.target.is_dir() and not any(self.target.iterdir()):
                return None
            raise RefusedError(f"{self.target}: is there, and not written by rmqtool export")
        if manifest.get("request") != request:
            return None
        return manifest if all(_is_there(self.target, file) for file in manifest["files"]) else None

    def write(self, table: DataFrame, request: Mapping[str, Any]) -> dict[str, Any]:
        """Write the table; the manifest. Where it fails, `discard_partial` has to be called.

        Raises:
            UsageError: no such column to partition by.
            UnsupportedError: Spark has no writer of this form.
            WriteError: the directory cannot be written.
        """
        partial, old = self._beside("partial"), self._beside("old")
        if old.exists() and not self.target.exists():
            old.rename(self.target)  # ended between two renames
        try:
            for left in (partial, old):
                shutil.rmtree(left, ignore_errors=True)
            rows = self._save(table, partial)
            manifest = _made_manifest(partial, rows, request)
            if self.target.exists():
                self.target.rename(old)
            partial.rename(self.target)
        except OSError as error:
            raise WriteError(f"{self.target}: {reason(error)}") from error
        shutil.rmtree(old, ignore_errors=True)
        return manifest

    def discard_partial(self) -> None:
        """Remove what an export that did not end well has left; its tasks must have ended."""
        shutil.rmtree(self._beside("partial"), ignore_errors=True)

    def _beside(self, what: str) -> Path:
        return self.target.with_name(f".{self.target.name}.rmqtool-{what}")

    def _save(self, table: DataFrame, folder: Path) -> int:
        from pyspark.errors import AnalysisException
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        written = _flat(table) if self.form is Form.CSV else table
        for name in self.partition_by:
            if name in DERIVED and name not in table.columns:
                pattern = "yyyy-MM-dd" if name == "day" else "yyyy-MM-dd-HH"
                written = written.withColumn(name, f.date_format(f.timestamp_millis("store_timestamp_ms"), pattern))
            elif name not in table.columns:
                raise UsageError(f"--partition-by: {unknown_name('column', name, (*table.columns, *DERIVED))}")
        counted = Observation("export")
        written = written.observe(counted, f.count(f.lit(1)).alias("rows"))
        writer = written.write.format(self.form.value).partitionBy(*self.partition_by)
        if self.form is Form.CSV:
            writer = writer.option("header", "true").option("escape", '"')
        try:
            writer.save(f"file://{folder.absolute()}")
        except AnalysisException as error:
            if self.form is Form.AVRO and "avro" in str(error).lower():
                raise UnsupportedError(
                    "Spark has no Avro writer here: --conf spark.jars.packages=org.apache.spark:spark-avro_2.13:VERSION"
                ) from error
            raise
        return int(counted.get["rows"])


def refuse_inside(target: Path, stores: Sequence[Store]) -> None:
    """A file in a store would be one that stops a broker's start.

    Raises:
        RefusedError: the target lies in one of the stores.
    """
    for store in stores:
        if target.resolve().is_relative_to(Path(store.view.label).resolve()):
            raise RefusedError(f"{target}: an export must be outside the store, because export never writes to it")


def _flat(table: DataFrame) -> DataFrame:
    """CSV has texts and numbers only: lists and maps become JSON, bytes base64."""
    from pyspark.sql import functions as f

    def cell(name: str, kind: str) -> Column:
        if kind.startswith(("array", "map")):
            return f.to_json(name).alias(name)
        return f.base64(name).alias(name) if kind == "binary" else f.col(name)

    return table.select([cell(name, kind) for name, kind in table.dtypes])


def _made_manifest(folder: Path, rows: int, request: Mapping[str, Any]) -> dict[str, Any]:
    files = []
    for path in sorted(folder.rglob("*")):
        if path.name.startswith(".") and path.suffix == ".crc":
            path.unlink()
        elif path.is_file() and not path.name.startswith("_"):
            files.append(
                {"path": str(path.relative_to(folder)), "bytes": path.stat().st_size, "sha256": _hash_of(path)}
            )
    manifest = {"format": MANIFEST_FORMAT, "rows": rows, "files": files, "request": dict(request)}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", "utf-8")
    return manifest


def _hash_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_HASH_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _is_there(folder: Path, file: Mapping[str, Any]) -> bool:
    path = folder / file["path"]
    return path.is_file() and path.stat().st_size == int(file["bytes"]) and _hash_of(path) == str(file["sha256"])


def _read_manifest(folder: Path) -> dict[str, Any] | None:
    try:
        manifest = json.loads((folder / MANIFEST).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return manifest if isinstance(manifest, dict) and "files" in manifest and "request" in manifest else None


def _fingerprint(store: Store) -> str:
    """Of names, sizes and times of all files of a store."""
    entries = sorted(
        (entry.path, entry.size, entry.mtime_ns)
        for entries in store.files.values()
        for entry in entries
        if entry.path != "lock"
    )
    return hashlib.sha256(json.dumps(entries).encode()).hexdigest()
