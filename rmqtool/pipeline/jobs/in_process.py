"""Adds a batch to a table in this process: files of Parquet by pyarrow, a commit of Delta by its own library.

Folders, names of columns and notes are those that Spark writes, so that either continues what the other began.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from rmqtool.errors import UsageError, WriteError
from rmqtool.pipeline.enums import Form
from rmqtool.pipeline.jobs.partitions import DERIVED, folder_of
from rmqtool.report.names import unknown_name

ROWS_OF_GROUP: Final = 1 << 16
"""Rows of a row group at most: what is held in memory for each open file."""
OPEN_FILES: Final = 256
PARTITIONS_MAX: Final = 1 << 20
_DAY_MS: Final = 86_400_000
_HOUR_MS: Final = 3_600_000


def can_write(form: Form) -> bool:
    """True if rows of a form are written here, with what is installed."""
    return form is Form.PARQUET or (form is Form.DELTA and find_spec("deltalake") is not None)


def save_parquet(rows: pa.RecordBatchReader, partition_by: Sequence[str], folder: str) -> int:
    """Write rows into a directory that is not there; how many they were.

    Raises:
        UsageError: no such column to partition by.
        WriteError: the directory cannot be written.
    """
    counted = _Counted(rows, partition_by)
    Path(folder).mkdir(parents=True, exist_ok=True)
    try:
        counted.consume(
            lambda reader: ds.write_dataset(
                reader,
                folder,
                format="parquet",
                partitioning=ds.partitioning(pa.schema(counted.folders), flavor="hive"),
                basename_template=f"part-{uuid.uuid4()}-{{i}}.parquet",
                existing_data_behavior="overwrite_or_ignore",
                max_partitions=PARTITIONS_MAX,
                max_open_files=OPEN_FILES,
                max_rows_per_group=ROWS_OF_GROUP,
            )
        )
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError):
            raise WriteError(f"{folder}: {error}") from error
        raise
    return counted.row_count


def append_delta(
    rows: pa.RecordBatchReader,
    partition_by: Sequence[str],
    place: str,
    export_id: str,
    number: int,
    notes: Mapping[str, Any],
    is_there: Callable[[], bool],
) -> int:
    """Add rows to a Delta table, in one commit that has the number of the batch; how many they were.

    Nothing is added where anybody else has added to the table since `is_there` said that the batch is not there.

    Raises:
        UsageError: no such column to partition by.
        WriteError: the table cannot be written, or somebody else writes into it.
    """
    from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
    from deltalake.exceptions import DeltaError

    counted = _Counted(rows, partition_by)
    folders = [field.name for field in counted.folders]
    properties = CommitProperties(
        custom_metadata={"userMetadata": json.dumps(notes)},
        max_commit_retries=0,
        app_transactions=[Transaction(export_id, number)],
    )
    try:
        if not DeltaTable.is_deltatable(place):
            DeltaTable.create(place, counted.schema, mode="ignore", partition_by=folders or None)
        table = DeltaTable(place)
        if is_there():
            return 0
        options: Any = {"mode": "append", "schema_mode": "merge", "commit_properties": properties}
        counted.consume(lambda reader: write_deltalake(table, reader, **options))
    except (OSError, DeltaError) as error:
        raise WriteError(f"{place}: {error}") from error
    return counted.row_count


def last_delta_batch(place: str, export_id: str) -> int | None:
    """Number of the last batch that a Delta table has of an export; its checkpoints keep it when commits expire."""
    from deltalake import DeltaTable

    return DeltaTable(place).transaction_version(export_id) if DeltaTable.is_deltatable(place) else None


class _Counted:
    """Rows with the columns that they are partitioned by; counts what is read of them.

    Attributes:
        folders: the columns that name folders.
    """

    def __init__(self, rows: pa.RecordBatchReader, partition_by: Sequence[str]) -> None:
        self._rows, self._partition_by = rows, partition_by
        self.row_count = 0
        self.folders = [_folder_field(rows.schema, name) for name in partition_by]
        own = [field for field in self.folders if field.name not in rows.schema.names]
        self.schema = pa.schema([*rows.schema, *own])
        self._error: BaseException | None = None

    def consume(self, write: Callable[[pa.RecordBatchReader], object]) -> None:
        """Have a library write the rows, once.

        It does so in a thread: neither pyarrow nor delta-rs lets ^C through before all is written, and delta-rs hands
        no more than the text on of an error that comes while it reads.
        """
        with ThreadPoolExecutor(1) as thread:
            writing = thread.submit(write, pa.RecordBatchReader.from_batches(self.schema, self._batches()))
            try:
                writing.result()
            except KeyboardInterrupt as error:
                self._error = error
                raise
            except Exception as error:
                if self._error is None or self._error is error:
                    raise
                raise self._error from error

    def _batches(self) -> Iterator[pa.RecordBatch]:
        rows = self._with_folders()
        while self._error is None:
            try:
                batch = next(rows)
            except StopIteration:
                return
            except BaseException as error:
                self._error = error
                raise
            yield batch
        raise self._error

    def _with_folders(self) -> Iterator[pa.RecordBatch]:
        for batch in self._rows:
            self.row_count += batch.num_rows
            columns = {name: batch[name] for name in batch.schema.names}
            for name, field in zip(self._partition_by, self.folders, strict=True):
                if field.name not in columns:
                    columns[field.name] = _folders(batch, name)
            yield pa.RecordBatch.from_arrays([columns[name] for name in self.schema.names], schema=self.schema)


def _folder_field(schema: pa.Schema, name: str) -> pa.Field:
    if name in DERIVED and name not in schema.names and "store_timestamp_ms" in schema.names:
        return pa.field(name, pa.string())
    if name not in schema.names:
        raise UsageError(f"--partition-by: {unknown_name('column', name, (*schema.names, *DERIVED))}")
    kind = schema.field(name).type
    if pa.types.is_binary(kind) or pa.types.is_nested(kind):
        raise UsageError(f"--partition-by: {name} has bytes or lists, which name no folder; choose another column")
    return pa.field(f"{name}_folder", pa.string()) if pa.types.is_string(kind) else schema.field(name)


def _folders(batch: pa.RecordBatch, name: str) -> pa.Array:
    """The names of the folders of rows, by a column of texts or by their store time."""
    if name in DERIVED and name not in batch.schema.names:
        step = _DAY_MS if name == "day" else _HOUR_MS
        times = batch["store_timestamp_ms"]
        numbers = np.floor_divide(pc.fill_null(times, 0).to_numpy(zero_copy_only=False), step)
        encoded = pa.array(numbers, mask=pc.is_null(times).to_numpy(zero_copy_only=False)).dictionary_encode()
        texts = [_time_folder(number, name) for number in encoded.dictionary.to_pylist()]
    else:
        encoded = batch[name].dictionary_encode()
        texts = [folder_of(text) for text in encoded.dictionary.to_pylist()]
    return pa.DictionaryArray.from_arrays(encoded.indices, pa.array(texts, pa.string())).cast(pa.string())


def _time_folder(number: int, name: str) -> str:
    """Day or hour since 1970 as Java writes it: of years after 9999 with a sign."""
    text = str(np.datetime64(number, "D" if name == "day" else "h")).replace("T", "-")
    return f"+{text}" if len(text.partition("-")[0]) > 4 else text
