"""Figures of the log by store, topic, queue, tag, hour, producer or size: how many messages, how large, since when."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rmqtool.pipeline.enums import By
from rmqtool.times import hour_begin

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

_FUNCTIONS: Final[Mapping[str, Callable[[Iterable[Any]], Any]]] = {"sum": sum, "min": min, "max": max}
Groups = dict[tuple[Any, ...], dict[str, Any]]
"""Figures by group."""

QUARTER_MS: Final = 900_000
"""Unit by which Spark counts for hours: zones differ by whole quarters of an hour, and their hours are
sums of these.
"""

KEYS: Final[Mapping[By, tuple[str, ...]]] = {
    By.STORE: ("store",),
    By.TOPIC: ("topic",),
    By.QUEUE: ("store", "topic", "queue_id"),
    By.TAG: ("topic", "tags"),
    By.HOUR: ("hour_timestamp_ms",),
    By.PRODUCER: ("producer",),
    By.SIZE: ("size_least",),
}
"""The columns of the groups: a queue is one of its store, for all brokers number theirs alike; an hour of the zone that
screens show by its first millisecond, a producer by its address, a size by the largest power of two in it."""
FIGURES: Final = ("messages", "bytes", "body_bytes", "first_store_timestamp_ms", "last_store_timestamp_ms")
QUEUE_FIGURES: Final = ("min_queue_offset", "max_queue_offset")
_READ: Final[Mapping[By, tuple[str, ...]]] = {By.HOUR: (), By.PRODUCER: ("born_host",), By.SIZE: ()}
_ALWAYS_READ: Final = ("type", "size", "body_length", "store_timestamp_ms", "finding")


@dataclass(frozen=True)
class BadRanges:
    """Ranges that could not be counted."""

    count: int
    size: int


def fields(by: By) -> tuple[str, ...]:
    """The fields of a row."""
    return (*KEYS[by], *FIGURES, *(QUEUE_FIGURES if by is By.QUEUE else ()))


def columns(by: By) -> tuple[str, ...]:
    """The columns of `messages` that are needed: every other one would cross from Python to Spark for nothing."""
    more = ("queue_offset",) if by is By.QUEUE else ()
    return (*_ALWAYS_READ, *_READ.get(by, KEYS[by]), *more)


def figures(messages: DataFrame, by: By) -> Iterator[dict[str, Any] | BadRanges]:
    """A row for each group, in the order of the groups; before them the ranges that could not be counted, if any."""
    from pyspark.sql import functions as f

    keyed = messages.filter("type <> 'blank'").withColumns(_derived(by))
    measured: list[Column] = [f.count("*").alias("messages")]
    measured += [getattr(f, function)(column).alias(name) for name, (column, function) in _measured(by).items()]
    is_bad = f.col("finding").isNotNull().alias("is_bad")
    rows = [row.asDict() for row in keyed.groupBy(is_bad, *KEYS[by]).agg(*measured).collect()]
    return _in_order(rows, by)


def figures_of_batches(batches: Iterable[pa.RecordBatch], by: By) -> Iterator[dict[str, Any] | BadRanges]:
    """Figures of record batches with `columns`, of which only figures of groups are kept."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rows: Groups = {}
    for batch in batches:
        counted = batch.filter(pc.not_equal(batch["type"], "blank"))
        keys = {"is_bad": pc.is_valid(counted["finding"]), **_derived_here(counted, by)}
        keys |= {name: counted[name] for name in KEYS[by] if name not in keys}
        measured = _measured(by)
        values = {f"{name}_values": counted[column] for name, (column, _) in measured.items()}
        aggregates: list[Any] = [([], "count_all")]
        aggregates += [(f"{name}_values", function) for name, (_, function) in measured.items()]
        grouped = pa.table({**keys, **values}).group_by(list(keys)).aggregate(aggregates)
        names = {f"{name}_values_{function}": name for name, (_, function) in measured.items()}
        names["count_all"] = "messages"
        grouped = grouped.rename_columns([names.get(name, name) for name in grouped.column_names])
        for row in grouped.to_pylist():
            _merge(rows, tuple(row[name] for name in keys), row, by)
    return _in_order(list(rows.values()), by)


def _measured(by: By) -> dict[str, tuple[str, str]]:
    """Figures beside the number of messages: the column and the function of each."""
    measured = {
        "bytes": ("size", "sum"),
        "body_bytes": ("body_length", "sum"),
        "first_store_timestamp_ms": ("store_timestamp_ms", "min"),
        "last_store_timestamp_ms": ("store_timestamp_ms", "max"),
    }
    if by is By.QUEUE:
        measured |= {"min_queue_offset": ("queue_offset", "min"), "max_queue_offset": ("queue_offset", "max")}
    return measured


def _in_order(rows: list[dict[str, Any]], by: By) -> Iterator[dict[str, Any] | BadRanges]:
    bad = [row for row in rows if row["is_bad"]]
    if bad:
        yield BadRanges(sum(row["messages"] for row in bad), sum(row["bytes"] for row in bad))
    # Put into order here: all of them come to the driver anyway, and Spark's own way takes two jobs more.
    sound = [row for row in rows if not row.pop("is_bad")]
    if by is By.HOUR:
        hours: Groups = {}
        for row in sound:
            begin_ms = hour_begin(row["hour_timestamp_ms"])
            _merge(hours, (begin_ms,), {**row, "hour_timestamp_ms": begin_ms}, by)
        sound = list(hours.values())
    yield from sorted(sound, key=lambda row: [(row[name] is not None, row[name]) for name in KEYS[by]])


def _merge(groups: Groups, key: tuple[Any, ...], row: dict[str, Any], by: By) -> None:
    """Add the figures of some messages of a group to those of others."""
    group = groups.setdefault(key, row)
    if group is row:
        return
    group["messages"] += row["messages"]
    for name, (_, function) in _measured(by).items():
        values = [value for value in (group[name], row[name]) if value is not None]
        group[name] = _FUNCTIONS[function](values) if values else None


def _derived(by: By) -> dict[str, Column]:
    from pyspark.sql import functions as f

    if by is By.HOUR:
        return {"hour_timestamp_ms": f.col("store_timestamp_ms") - f.pmod("store_timestamp_ms", f.lit(QUARTER_MS))}
    if by is By.PRODUCER:
        return {"producer": f.regexp_replace("born_host", ":-?\\d+$", "")}
    if by is By.SIZE:
        return {"size_least": f.expr("cast(pow(2, floor(log2(size))) as bigint)")}
    return {}


def _derived_here(batch: pa.RecordBatch, by: By) -> dict[str, pa.Array]:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if by is By.HOUR:
        times = pc.fill_null(batch["store_timestamp_ms"], 0).to_numpy()
        return {"hour_timestamp_ms": pa.array(times - np.mod(times, QUARTER_MS))}
    if by is By.PRODUCER:
        return {"producer": pc.replace_substring_regex(batch["born_host"], ":-?[0-9]+$", "")}
    if by is By.SIZE:
        return {"size_least": pa.array(np.left_shift(1, np.frexp(batch["size"].to_numpy())[1].astype(np.int64) - 1))}
    return {}
