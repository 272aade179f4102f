"""Figures of the log by topic, queue, tag, hour, producer or size: how many messages, how large, since when."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rmqtool.pipeline.enums import By
from rmqtool.times import hour_begin

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

QUARTER_MS: Final = 900_000
"""What Spark counts by for hours: zones are apart by whole quarters of an hour, and their hours are sums of these."""

KEYS: Final[Mapping[By, tuple[str, ...]]] = {
    By.TOPIC: ("topic",),
    By.QUEUE: ("topic", "queue_id"),
    By.TAG: ("topic", "tags"),
    By.HOUR: ("hour_timestamp_ms",),
    By.PRODUCER: ("producer",),
    By.SIZE: ("size_least",),
}
"""The columns of the groups: an hour of the zone that screens show by its first millisecond, a producer by its address,
a size by the largest power of two in it."""
FIGURES: Final = ("messages", "bytes", "body_bytes", "first_store_timestamp_ms", "last_store_timestamp_ms")
QUEUE_FIGURES: Final = ("min_queue_offset", "max_queue_offset")
_READ: Final[Mapping[By, tuple[str, ...]]] = {By.HOUR: (), By.PRODUCER: ("born_host",), By.SIZE: ()}
_ALWAYS_READ: Final = ("type", "size", "body_length", "store_timestamp_ms", "finding")


@dataclass(frozen=True)
class BadRanges:
    """What could not be counted."""

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
    """A row for each group, in the order of the groups; before them what could not be counted, if there is anything."""
    from pyspark.sql import functions as f

    keyed = messages.filter("type <> 'blank'").withColumns(_derived(by))
    measured: list[Column] = [
        f.count("*").alias("messages"),
        f.sum("size").alias("bytes"),
        f.sum("body_length").alias("body_bytes"),
        f.min("store_timestamp_ms").alias("first_store_timestamp_ms"),
        f.max("store_timestamp_ms").alias("last_store_timestamp_ms"),
    ]
    if by is By.QUEUE:
        measured += [f.min("queue_offset").alias("min_queue_offset"), f.max("queue_offset").alias("max_queue_offset")]
    is_bad = f.col("finding").isNotNull().alias("is_bad")
    rows = [row.asDict() for row in keyed.groupBy(is_bad, *KEYS[by]).agg(*measured).collect()]
    bad = [row for row in rows if row["is_bad"]]
    if bad:
        yield BadRanges(sum(row["messages"] for row in bad), sum(row["bytes"] for row in bad))
    # Put into order here: all of them come to the driver anyway, and Spark's own way takes two jobs more.
    sound = [row for row in rows if not row.pop("is_bad")]
    if by is By.HOUR:
        sound = _in_hours(sound)
    yield from sorted(sound, key=lambda row: [(row[name] is not None, row[name]) for name in KEYS[by]])


def _in_hours(quarters: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of quarters as those of hours."""
    hours: dict[int, dict[str, Any]] = {}
    for row in quarters:
        begin_ms = hour_begin(row["hour_timestamp_ms"])
        hour = hours.get(begin_ms)
        if hour is None:
            hours[begin_ms] = {**row, "hour_timestamp_ms": begin_ms}
            continue
        for name in ("messages", "bytes", "body_bytes"):
            hour[name] += row[name]
        for name, extreme in (("first_store_timestamp_ms", min), ("last_store_timestamp_ms", max)):
            hour[name] = extreme(hour[name], row[name])
    return list(hours.values())


def _derived(by: By) -> dict[str, Column]:
    from pyspark.sql import functions as f

    if by is By.HOUR:
        return {"hour_timestamp_ms": f.col("store_timestamp_ms") - f.pmod("store_timestamp_ms", f.lit(QUARTER_MS))}
    if by is By.PRODUCER:
        return {"producer": f.regexp_replace("born_host", ":-?\\d+$", "")}
    if by is By.SIZE:
        return {"size_least": f.expr("cast(pow(2, floor(log2(size))) as bigint)")}
    return {}
