"""Milliseconds of stores as the times of Arrow, Spark and the tables that they write."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from rmqtool.pipeline.tables.texts import Numbers

TIME_TYPE: Final = pa.timestamp("us", tz="UTC")
"""Spark's own timestamps: microseconds since 1970 in UTC."""
LAST_MS: Final = 253_402_214_400_000
"""The last day of the year 9999, which has begun nowhere then; Python knows no later time."""


def time_array(timestamps_ms: Numbers) -> pa.Array:
    """Times; null before 1970 and after 9999, which only damage or a program writes: the milliseconds show it."""
    known = (timestamps_ms >= 0) & (timestamps_ms < LAST_MS)
    times = np.where(known, timestamps_ms, 0).astype(np.int64) * 1000
    return pa.array(times, mask=None if known.all() else ~known).cast(TIME_TYPE)
