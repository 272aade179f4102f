"""Exports new rows: keeps each log's position in the target, and adds each batch once, also after kills.

One run at a time has the lease of the target. The range of each log that a batch takes is noted in the target before
the batch is written, and what it was made of after that; a note is created and never changed. A batch that a kill came
upon is written again with the same ranges, and the table knows its number. Files become part of a table of files by the
note that names them, and are put into their places then. So even a run whose lease was broken adds nothing twice, and
removes nothing that another run added. Streams of Spark are not used: they need a Python process that connects within
ten seconds, which a busy machine does not always give.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import rmqtool
from rmqtool.engine.segments.log_position import (
    Position,
    position_after,
    position_before_cut,
    position_within,
    readable_end,
    what_is_lost,
)
from rmqtool.errors import RefusedError, UsageError, WriteError
from rmqtool.pipeline.enums import Form
from rmqtool.pipeline.jobs.export import MANIFEST, NOTES, beside, save_rows, written_files
from rmqtool.pipeline.jobs.in_process import save_parquet
from rmqtool.pipeline.jobs.lakehouse import TABLE_FORMS, LakeTable
from rmqtool.pipeline.jobs.lease import Lease
from rmqtool.pipeline.jobs.partitions import partitioned
from rmqtool.pipeline.jobs.target_files import TargetFiles
from rmqtool.pipeline.stores import read_messages
from rmqtool.pipeline.tables.options import MESSAGE_TABLES, PLANNING_THREADS
from rmqtool.scan.runner import ThreadRunner
from rmqtool.store.directory import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LEASES: Final = f"{NOTES}/leases"
"""Directory of the target in which the run that writes has its lease."""
NOTES_FORMAT: Final = 2
TEXT_FOLDERS: Final = 1
"""Format of the targets in which texts themselves are the names of folders; they stay as they are."""
PARTITIONS: Final = ("day",)
"""Of tables, if nobody names others."""
BATCH_BYTES: Final = 64 << 30
"""Of each log in a batch."""
CHECKED: Final = "checked_timestamp_ms"
"""Column of `findings`: when the stores were checked; every run adds all findings of that time."""
Range = tuple[int, int]
"""Of physical offsets; the end is excluded."""


@dataclass(frozen=True)
class ExportBatch:
    """One batch of an incremental export.

    Attributes:
        ranges: of the logs, by store.
        positions: of all stores after it, as `Position.as_json` has them.
        is_new: False where a run before has planned it, and may have written it.
        is_last: whether the logs have no more now.
    """

    number: int
    ranges: Mapping[str, Range] = field(default_factory=dict)
    positions: Mapping[str, Any] = field(default_factory=dict)
    is_new: bool = True
    is_last: bool = True


@dataclass(frozen=True)
class TargetLayout:
    """Layout of a target's tables, which the target keeps.

    Attributes:
        export_id: tells batches of this export from those of others.
        by_text: see `partitioned`.
    """

    export_id: str
    partition_by: tuple[str, ...]
    by_text: bool


@dataclass(frozen=True)
class IncrementalExport:
    """Content and target of an incremental export.

    Attributes:
        target: a path or URL, without a slash at its end; each table is a directory in it.
        options: of the data source.
        partition_by: columns that were asked for; none: those that the target has, or `PARTITIONS` of a new table.
        now_ms: when this run is.
        accepts_loss: whether to continue where records are gone that were not exported.
    """

    target: str
    form: Form
    table: str
    options: Mapping[str, str]
    partition_by: tuple[str, ...]
    stores: Sequence[Store]
    now_ms: int
    files: TargetFiles
    accepts_loss: bool = False
    added: dict[str, int] = field(default_factory=lambda: {"rows": 0, "files": 0, "bytes": 0, "batches": 0})
    unflushed: dict[str, int] = field(default_factory=dict)
    """Bytes at the end of each store's log that were left out, since a broker may not have flushed them."""

    def run(self, session: SparkSession | None) -> dict[str, int]:
        """Add new rows; return the number of rows and batches, and for a table of files of files and bytes.

        Without a session this process reads and writes: messages, into files of Parquet or a Delta table.

        Raises:
            UsageError: there is no such column to partition by.
            RefusedError: the target holds something else, another run writes into it, or records are gone that were not
                exported.
            WriteError: the target cannot be written.
        """
        self._refuse_foreign()
        lease = Lease.take(self.files, f"{self.target}/{LEASES}", session)
        try:
            self._refuse_foreign()
            layout = self._layout()
            self._finish_moves()
            batch: ExportBatch | None = ExportBatch(self._next_number())
            if self.table in MESSAGE_TABLES:
                batch = self._planned_before() or self._plan()
            while batch is not None:
                self._add(session, batch, layout, lease)
                batch = None if batch.is_new and batch.is_last else self._plan()
        finally:
            lease.release()
        return self.added

    def new_bytes(self) -> int | None:
        """Bytes of logs that a run would add; None where only Spark can. Nothing is written.

        Raises:
            RefusedError: as `run`.
        """
        if self.table not in MESSAGE_TABLES:
            return None
        self._refuse_foreign()
        if self._noted("export.json") and self._layout().by_text:
            return None
        planned = self._noted(f"plans/{self._next_number():010}.json")
        ranges = planned["ranges"] if planned else self._next_ranges()[0]
        return sum(high - low for low, high in ranges.values())

    def has_leftovers(self) -> bool:
        """True if a run that ended has left files that the next one moves into their places, or removes."""
        return bool(self.files.sizes(self._staging))

    def _refuse_foreign(self) -> None:
        """Refuse a target with the lease of another run that replaces all of it."""
        leases = beside(self.target, "leases")
        if self.files.exists(f"{self.target}/{MANIFEST}") or (leases is not None and self.files.exists(leases)):
            raise RefusedError(
                f"{self.target}: is the target of an export without --incremental, which replaces all that is there; "
                "choose another --to"
            )
        if not self.files.exists(f"{self._notes}/export.json") and self.files.sizes(f"{self.target}/{self.table}"):
            raise RefusedError(f"{self.target}/{self.table}: is there, and not written by export --incremental")

    def _layout(self) -> TargetLayout:
        """Layout of this export, which the target keeps with the request.

        Raises:
            RefusedError: the target is of another export, or of none.
        """
        kept = self._noted("export.json")
        by_text = kept.get("format") == TEXT_FOLDERS
        default = PARTITIONS if self.form in TABLE_FORMS else ()
        partition_by = self.partition_by or tuple(kept.get("partition_by", default))
        request = {
            "format": TEXT_FOLDERS if by_text else NOTES_FORMAT,
            "form": self.form.value,
            "partition_by": list(partition_by),
            "options": {name: value for name, value in sorted(self.options.items()) if name not in ("path", "paths")},
        }
        if not kept:
            if self.files.sizes(self._notes):
                raise RefusedError(f"{self._notes}: has no export.json, so it is not known what was exported")
            export_id = str(uuid.uuid4())
            self._note("export.json", {**request, "id": export_id, "rmqtool": rmqtool.__version__})
            return TargetLayout(export_id, partition_by, by_text)
        differing = [name for name, value in request.items() if kept.get(name) != value]
        if differing:
            raise RefusedError(
                f"{self.target}: was exported with other settings ({', '.join(differing)}); choose another --to"
            )
        return TargetLayout(str(kept["id"]), partition_by, by_text)

    def _planned_before(self) -> ExportBatch | None:
        """The batch that an earlier run planned and did not note as written; None without one."""
        number = self._next_number()
        plan = self._noted(f"plans/{number:010}.json")
        if not plan:
            return None
        ranges = {store: (int(low), int(high)) for store, (low, high) in plan["ranges"].items()}
        stores = {store.view.label: store for store in self.stores}
        for label, (low, _) in ranges.items():
            if label not in stores:
                self._lost(label, "there is no store any more, or it cannot be read")
            elif (message := what_is_lost(stores[label], Position(low))) is not None:
                self._lost(label, message)
        return ExportBatch(number, ranges, plan["positions"], is_new=False)

    def _plan(self) -> ExportBatch | None:
        """The next batch; None where nothing is new."""
        number = self._next_number()
        ranges, positions, is_last = self._next_ranges()
        if not ranges:
            return None
        self._note(f"plans/{number:010}.json", {"ranges": ranges, "positions": positions})
        return ExportBatch(number, ranges, positions, is_last=is_last)

    def _next_ranges(self) -> tuple[dict[str, Range], dict[str, Any], bool]:
        """The ranges of the next batch, the positions after it, and True if the logs have no more."""
        before = self._noted(f"batches/{self._next_number() - 1:010}.json").get("positions", {})
        for label in before.keys() - {store.view.label for store in self.stores}:
            self._lost(label, "there is no store any more, or it cannot be read")
        planned = list(ThreadRunner(PLANNING_THREADS).map(partial(self._next_range, before), self.stores))
        ranges = {label: (low, position.physical_offset) for label, low, position, _ in planned}
        positions = before | {label: position.as_json() for label, _, position, _ in planned}
        is_last = not any(is_cut for *_, is_cut in planned)
        return {label: (low, high) for label, (low, high) in ranges.items() if low < high}, positions, is_last

    def _next_range(self, before: Mapping[str, Any], store: Store) -> tuple[str, int, Position, bool]:
        """A store, start and end of its next range, and True if its log has more than a batch takes."""
        label, known = store.view.label, None
        begin = Position(store.log_start)
        if label in before:
            known = Position.parse(before[label])
            message = what_is_lost(store, known)
            if message is not None:
                self._lost(label, message)
                if store.commitlog:  # else its disk may be away: the position is kept until it is back
                    known = position_before_cut(store, known)
            begin = known
        low = begin.physical_offset
        end, self.unflushed[label] = readable_end(store, known)
        if end.physical_offset <= low:
            return label, low, begin, False
        cut = position_within(store, begin, end, BATCH_BYTES)
        is_cut, end = cut.physical_offset < end.physical_offset, cut
        return label, low, position_after(store, begin, end), is_cut

    def _lost(self, label: str, message: str) -> None:
        if not self.accepts_loss:
            raise RefusedError(f"{label}: {message}; to export what is there now, add --accept-loss")

    def _add(self, session: SparkSession | None, batch: ExportBatch, layout: TargetLayout, lease: Lease) -> None:
        name = f"batches/{batch.number:010}.json"
        manifest: dict[str, Any] = {"format": NOTES_FORMAT, "batch": batch.number}
        manifest["stores"] = stores = dict[str, Any]()
        for store in self.stores:
            if store.view.label in batch.ranges:
                low, high = batch.ranges[store.view.label]
                read = [segment for segment in store.commitlog if segment.start < high and segment.end > low]
                listed = [{"path": segment.path, "bytes": segment.size} for segment in read]
                stores[store.view.label] = {"from_offset": low, "to_offset": high, "files": listed}
        options = dict(self.options)
        if self.table in MESSAGE_TABLES:
            options["ranges"] = json.dumps(batch.ranges)
        place = f"{self.target}/{self.table}"
        if session is None:
            here = read_messages(options)
        else:
            from rmqtool.pipeline.frames import table_frame

            rows = table_frame(session, options)
            if self.table not in MESSAGE_TABLES:
                rows = self._with_time_of_check(rows)
        if self.form in TABLE_FORMS and session is None:
            table = LakeTable(self.form, self.files, place, self.table, layout.partition_by, layout.export_id)
            lease.check()
            manifest["rows"] = table.append_here(here, batch.number, manifest)
        elif self.form in TABLE_FORMS:
            rows, folders = partitioned(rows, layout.partition_by, by_text=layout.by_text)
            table = LakeTable(self.form, self.files, place, self.table, tuple(folders), layout.export_id)
            lease.check()
            manifest["rows"] = table.append(rows, batch.number, manifest)
        else:
            folder = f"{batch.number:010}-{lease.id}"  # no other run writes into it
            staging = f"{self._staging}/{folder}"
            if session is None:
                manifest["rows"] = save_parquet(here, layout.partition_by, staging)
            else:
                path = self.files.spark_path(staging)
                manifest["rows"] = save_rows(rows, self.form, layout.partition_by, path, by_text=layout.by_text)
            manifest["staging"], manifest["files"] = folder, written_files(self.files, staging)
            manifest["bytes"] = sum(file["bytes"] for file in manifest["files"])
            lease.check()
        self._note(name, {**manifest, "positions": batch.positions})
        self._finish_moves()
        self.added["rows"] += manifest["rows"]
        self.added["bytes"] += manifest.get("bytes", 0)
        self.added["files"] += len(manifest.get("files", ()))
        self.added["batches"] += 1

    def _with_time_of_check(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql import functions as f

        day = f.date_format(f.timestamp_millis(CHECKED), "yyyy-MM-dd")
        checked = {CHECKED: f.lit(self.now_ms), "checked_time": f.timestamp_millis(f.lit(self.now_ms))}
        return rows.withColumns(checked).withColumn("day", day)

    def _finish_moves(self) -> None:
        """Move the files of the last batch into their places, and remove what killed runs left.

        Nothing is removed from the table: a file that is there already was moved by a run that a kill ended.
        """
        staged = self.files.sizes(self._staging)
        if not staged:
            return
        last = self._next_number() - 1
        note = self._noted(f"batches/{last:010}.json")
        folder = f"{note['staging']}/" if note.get("staging") else ""  # rmqtool 0.3 had one directory for all batches
        table = f"{self.target}/{self.table}"
        there = self.files.sizes(table)
        for file in note.get("files", ()):
            path = file["path"]
            if path not in there and f"{folder}{path}" in staged:
                self.files.move(f"{self._staging}/{folder}{path}", f"{table}/{path}")
        there = self.files.sizes(table)
        lacking = [file["path"] for file in note.get("files", ()) if there.get(file["path"]) != file["bytes"]]
        if lacking:
            raise WriteError(f"{table}/{lacking[0]}: is not there as it was written; {len(lacking)} files in all")
        for name in sorted({path.partition("/")[0] for path in staged}):
            number = name.partition("-")[0]
            if not (number.isdecimal() and int(number) > last):  # that one may be of a run whose lease was broken
                self.files.remove(f"{self._staging}/{name}")
        self.files.remove_if_empty(self._staging)

    def _next_number(self) -> int:
        names = self.files.sizes(f"{self._notes}/batches")
        numbers = [int(name.removesuffix(".json")) for name in names if name.removesuffix(".json").isdecimal()]
        return max(numbers, default=-1) + 1

    def _noted(self, name: str) -> dict[str, Any]:
        """A note of the target; empty where there is none."""
        place = f"{self._notes}/{name}"
        try:
            noted = json.loads(self.files.read(place) or "{}")
        except ValueError as error:
            raise RefusedError(f"{place}: was changed since it was written") from error
        return noted if isinstance(noted, dict) else {}

    def _note(self, name: str, content: Mapping[str, Any]) -> None:
        if not self.files.create(f"{self._notes}/{name}", json.dumps(content, indent=2) + "\n"):
            raise RefusedError(f"{self._notes}/{name}: another export has written it meanwhile; run this one again")

    @property
    def _notes(self) -> str:
        return f"{self.target}/{NOTES}/{self.table}"

    @property
    def _staging(self) -> str:
        return f"{self._notes}/staging"


def demand_growing(table: str) -> None:
    """Refuse a table to which nothing can be added.

    Raises:
        UsageError: it is one.
    """
    if table not in (*MESSAGE_TABLES, "findings"):
        raise UsageError(
            f"--incremental: --table messages, business_messages or findings, not {table}: it is replaced as a whole"
        )
