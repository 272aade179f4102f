"""The compiled pass that takes columns out of rows; which rows it takes is said in `plain_rows`."""

# The compiler infers the types of what it compiles; annotations would say less, and not be checked against it.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,misc"
# ruff: noqa: ANN001, ANN201
from __future__ import annotations

from rmqtool.formats import commitlog, system_flag
from rmqtool.scan.kernels.jit import INT_TABLE, INTS, LONG, LONG_TABLE, LONGS, ROWS, kernel
from rmqtool.scan.rules import Verdict

GOOD, MAGIC_V1 = int(Verdict.GOOD), commitlog.MAGIC_V1
HOST_BITS = system_flag.BORN_HOST_V6 | system_flag.STORE_HOST_V6


@kernel(ROWS, LONG_TABLE, INT_TABLE, LONG_TABLE)
def take_columns(rows, wide, narrow, bounds):
    """Take the columns of `plain_rows.WIDE` and `NARROW`; False once a row is not plain.

    `bounds` takes the smallest and the largest number of each column, which must stand there for the first row.
    """
    following = rows[0].physical_offset
    for k in range(rows.size):
        row = rows[k]
        if row.verdict != GOOD or row.magic != MAGIC_V1 or row.features != 0 or row.sys_flag & HOST_BITS != 0:
            return False
        if row.topic_length == 0 or row.own_offset != row.physical_offset or row.physical_offset != following:
            return False
        following += row.size
        wide[0, k] = row.physical_offset
        wide[1, k] = row.size
        wide[2, k] = row.queue_offset
        wide[3, k] = row.store_timestamp_ms
        wide[4, k] = row.prepared_transaction_offset
        wide[5, k] = row.tags_code
        narrow[0, k] = row.queue_id
        narrow[1, k] = row.sys_flag
        narrow[2, k] = row.topic_number
        narrow[3, k] = row.topic_length
        for column in range(6):
            bounds[column, 0] = min(bounds[column, 0], wide[column, k])
            bounds[column, 1] = max(bounds[column, 1], wide[column, k])
        for column in range(4):
            bounds[6 + column, 0] = min(bounds[6 + column, 0], narrow[column, k])
            bounds[6 + column, 1] = max(bounds[6 + column, 1], narrow[column, k])
    return True


@kernel(ROWS, LONG, *[LONGS] * 6, *[INTS] * 6)
def take_rows(
    rows, at, physical_offset, size, queue_offset, store_timestamp_ms, prepared_transaction_offset, tags_code, verdict,
    magic, queue_id, sys_flag, topic_number, features,
):  # fmt: skip
    """Take the columns of `chunk_columns.CHUNK` of rows, from a place in them on; the features of all rows together."""
    all_features = 0
    for k in range(rows.size):
        row = rows[k]
        physical_offset[at] = row.physical_offset
        size[at] = row.size
        queue_offset[at] = row.queue_offset
        store_timestamp_ms[at] = row.store_timestamp_ms
        prepared_transaction_offset[at] = row.prepared_transaction_offset
        tags_code[at] = row.tags_code
        verdict[at] = row.verdict
        magic[at] = row.magic
        queue_id[at] = row.queue_id
        sys_flag[at] = row.sys_flag
        topic_number[at] = row.topic_number
        features[at] = row.features
        all_features |= row.features
        at += 1
    return all_features
