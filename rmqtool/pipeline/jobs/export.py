"""Writes a table into a directory: whole or not at all, with a manifest, and not again where nothing has changed.

Spark writes into a directory beside the target, which takes its place when all of it is there; both lie on one file
system that driver and executors see. An object store renames file by file: what a kill leaves of that is written again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import rmqtool
from rmqtool.errors import RefusedError, UnsupportedError, UsageError
from rmqtool.pipeline.enums import Form
from rmqtool.pipeline.jobs.lease import Lease
from rmqtool.pipeline.jobs.partitions import partitioned
from rmqtool.pipeline.jobs.target_files import TargetFiles, data_files
from rmqtool.pipeline.tables.options import SourceOptions
from rmqtool.store.directory import Store

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MANIFEST: Final = "_rmqtool-export.json"
"""Begins with an underscore, so that Spark and others do not take it for data."""
MANIFEST_FORMAT: Final = 2
"""Since 2 a partition column of texts is `NAME_folder`."""
NOTES: Final = "_rmqtool"
"""Directory of the target of `--incremental` that is no table."""


@dataclass(frozen=True)
class Export:
    """Content and target of an export.

    Attributes:
        target: a path or URL, without a slash at its end.
        options: of the data source.
        partition_by: columns, `day` or `hour`, that make directories.
    """

    target: str
    form: Form
    options: Mapping[str, str] = field(default_factory=dict)
    partition_by: tuple[str, ...] = ()

    def request(self) -> dict[str, Any]:
        """Options and source files of the export: equal requests have equal results.

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

    def done_before(self, request: Mapping[str, Any], files: TargetFiles) -> dict[str, Any] | None:
        """The manifest of the same export that is there already, with all its files.

        Raises:
            RefusedError: the directory holds something else.
            WriteError: it cannot be read.
        """
        if not files.exists(self.target):
            return None
        if files.exists(f"{self.target}/{NOTES}"):
            raise RefusedError(f"{self.target}: has tables of export --incremental, and would be replaced as a whole")
        try:
            manifest = json.loads(files.read(f"{self.target}/{MANIFEST}") or "")
        except ValueError:
            manifest = None
        if not (isinstance(manifest, dict) and "files" in manifest and "request" in manifest):
            # Beside an export that a kill ended while it was put into its place lies the rest of it, or the one before.
            if not files.sizes(self.target) or any(map(files.exists, (self._partial, self._old))):
                return None
            raise RefusedError(f"{self.target}: is there, and not written by rmqtool export")
        if (manifest.get("format"), manifest["request"]) != (MANIFEST_FORMAT, request):
            return None
        sizes = files.sizes(self.target)
        if any(sizes.get(file["path"]) != file["bytes"] for file in manifest["files"]):
            return None
        hashes = files.hashes(self.target, [file["path"] for file in manifest["files"]])
        return manifest if all(hashes[file["path"]] == file["sha256"] for file in manifest["files"]) else None

    def write(self, table: DataFrame, request: Mapping[str, Any], files: TargetFiles, lease: Lease) -> dict[str, Any]:
        """Write the table; the manifest. Where it fails, `discard_partial` has to be called.

        Raises:
            UsageError: no such column to partition by.
            UnsupportedError: Spark has no writer of this form.
            RefusedError: the lease was broken.
            WriteError: the directory cannot be written.
        """
        old = self._old
        if files.exists(old) and not files.exists(self.target):
            files.move(old, self.target)  # ended between two renames
        for left in (self._partial, old):
            files.remove(left)
        partial = self._staged(lease)
        rows = save_rows(table, self.form, self.partition_by, files.spark_path(partial))
        manifest = {"format": MANIFEST_FORMAT, "rows": rows, "files": written_files(files, partial)}
        manifest["request"] = dict(request)
        files.create(f"{partial}/{MANIFEST}", json.dumps(manifest, indent=2) + "\n")
        lease.check()
        if files.exists(self.target):
            files.move(self.target, old)
        files.move(partial, self.target)
        files.remove(old)
        return manifest

    def discard_partial(self, files: TargetFiles, lease: Lease) -> None:
        """Remove the staged files of this run; its tasks must have ended."""
        files.remove(self._staged(lease))
        files.remove_if_empty(self._partial)

    @property
    def leases(self) -> str:
        """The directory in which the run that writes has its lease; the target itself is replaced as a whole.

        Raises:
            UsageError: nothing can lie beside the target.
        """
        return self._beside("leases")

    @property
    def _partial(self) -> str:
        return self._beside("partial")

    def _staged(self, lease: Lease) -> str:
        """Directory where only this run writes: tasks of a run that was killed, or whose lease was broken, may write
        too.
        """
        return f"{self._partial}/{lease.id}"

    @property
    def _old(self) -> str:
        return self._beside("old")

    def _beside(self, what: str) -> str:
        place = beside(self.target, what)
        if place is None:
            raise UsageError(f"--to {self.target}: without --incremental this must name a directory in it")
        return place


def beside(target: str, what: str) -> str | None:
    """A hidden directory beside a target; None where the target is all of a bucket or file system."""
    parent, _, name = target.rpartition("/")
    return None if not name or parent.endswith(("/", ":")) else f"{parent}/.{name}.rmqtool-{what}"


def save_rows(table: DataFrame, form: Form, partition_by: Sequence[str], path: str, *, by_text: bool = False) -> int:
    """Write rows into a directory that is not there; how many they were.

    One shuffle brings the rows of a partition together, so that each is a file, or several of `FILE_BYTES`.

    Args:
        by_text: see `partitioned`.

    Raises:
        UsageError: no such column to partition by.
        UnsupportedError: Spark has no writer of this form.
    """
    from pyspark.errors import AnalysisException
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    written, folders = partitioned(_flat(table) if form is Form.CSV else table, partition_by, by_text=by_text)
    counted = Observation("export")
    written = written.observe(counted, f.count(f.lit(1)).alias("rows")).hint("rebalance", *map(f.col, folders))
    writer = written.write.format(form.value).partitionBy(*folders)
    if form is Form.CSV:
        writer = writer.option("header", "true").option("escape", '"')
    try:
        writer.save(path)
    except AnalysisException as error:
        if form is Form.AVRO and "avro" in str(error).lower():
            raise UnsupportedError(
                "Spark has no Avro writer here: --conf spark.jars.packages=org.apache.spark:spark-avro_2.13:VERSION"
            ) from error
        raise
    return int(counted.get["rows"])


def written_files(files: TargetFiles, folder: str) -> list[dict[str, Any]]:
    """Path, bytes and SHA-256 of each file that Spark wrote into a directory; Hadoop's checksums are removed."""
    sizes = files.sizes(folder)
    for name in sizes:
        if name.endswith(".crc"):
            files.remove(f"{folder}/{name}")
    names = data_files(sizes)
    hashes = files.hashes(folder, names)
    return [{"path": name, "bytes": sizes[name], "sha256": hashes[name]} for name in names]


def refuse_inside(target: Path, stores: Sequence[Store]) -> None:
    """A file in a store would be one that stops a broker's start.

    Raises:
        RefusedError: the target lies in one of the stores.
    """
    for store in stores:
        if target.resolve().is_relative_to(Path(store.view.label).resolve()):
            raise RefusedError(f"{target}: an export must be outside the store, because export never writes to it")


def _flat(table: DataFrame) -> DataFrame:
    """Convert a table for CSV, which has texts and numbers only: lists and maps become JSON, bytes base64."""
    from pyspark.sql import functions as f

    def cell(name: str, kind: str) -> Column:
        if kind.startswith(("array", "map")):
            return f.to_json(name).alias(name)
        return f.base64(name).alias(name) if kind == "binary" else f.col(name)

    return table.select([cell(name, kind) for name, kind in table.dtypes])


def _fingerprint(store: Store) -> str:
    entries = sorted(
        (entry.path, entry.size, entry.mtime_ns)
        for entries in store.files.values()
        for entry in entries
        if entry.path != "lock"
    )
    return hashlib.sha256(json.dumps(entries).encode()).hexdigest()
