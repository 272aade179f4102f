"""Looks for a pattern in the bodies, keys or properties of all messages; whole batches are matched at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqtool.errors import UsageError
from rmqtool.formats import system_flag
from rmqtool.formats.compression import decompress
from rmqtool.pipeline.enums import Where
from rmqtool.pipeline.tables.message_schema import message_schema

CONTENT_MAX: Final = 16 << 20
"""Bytes of a decompressed body that are searched."""
SHOWN: Final = (
    *("store", "file", "type", "physical_offset", "size", "topic", "queue_id", "queue_offset", "store_timestamp_ms"),
    *("tags", "keys", "unique_key", "message_id", "finding"),
)
"""Columns of a message that was found."""


_READ: Final = {
    Where.BODY: ("body", "sys_flag"),
    Where.KEYS: ("keys", "unique_key"),
    Where.PROPERTIES: ("properties_raw",),
}


def parse_search(pattern: str, where: str) -> Search:
    """What is looked for.

    Args:
        pattern: a regular expression of RE2.

    Raises:
        UsageError: it is none, or there is nothing of that name to search.
    """
    try:
        pc.match_substring_regex(pa.array([b""]), pattern)
        return Search(pattern, Where(where))
    except pa.ArrowInvalid as error:
        raise UsageError(f"{pattern!r} is not a valid pattern: {error}") from error
    except ValueError as error:
        raise UsageError(f"{where!r} is none of {', '.join(Where)}") from error


@dataclass(frozen=True)
class Search:
    """What is looked for; what is no sound message may hide it, and is found too."""

    pattern: str
    where: Where = Where.BODY

    def read(self, schema: pa.Schema) -> pa.Schema:
        """The columns that are needed beside those of a schema."""
        needed = [message_schema("full").field(name) for name in (*_READ[self.where], "type", "finding")]
        return pa.schema([*schema, *(column for column in needed if column.name not in schema.names)])

    def matches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of batches that match or are not sound."""
        for batch in batches:
            # Keys and properties are lines of one text.
            pattern = self.pattern if self.where is Where.BODY else f"(?m){self.pattern}"
            matched = pc.fill_null(pc.match_substring_regex(self._texts(batch), pattern), fill_value=False)
            yield batch.filter(pc.or_(matched, pc.is_valid(batch["finding"])))

    def _texts(self, batch: pa.RecordBatch) -> pa.Array:
        if self.where is Where.KEYS:
            keys = pc.binary_join(pc.fill_null(batch["keys"], pa.scalar([], batch["keys"].type)), "\n")
            return pc.binary_join_element_wise(keys, pc.fill_null(batch["unique_key"], ""), "\n")
        if self.where is Where.PROPERTIES:
            named = pc.replace_substring(batch["properties_raw"], b"\x01", b"=")
            return pc.replace_substring(named, b"\x02", b"\n")
        return _contents(batch["body"], batch["sys_flag"])


def _contents(bodies: pa.Array, flags: pa.Array) -> pa.Array:
    """Bodies, the compressed ones decompressed; one that is not what its flags say is searched as it is."""
    compressed = np.flatnonzero(np.asarray(pc.fill_null(flags, 0)) & system_flag.COMPRESSED)
    if not compressed.size:
        return bodies
    all_of: list[Any] = bodies.to_pylist()
    for at in compressed.tolist():
        kind = system_flag.compression(flags[at].as_py())
        if all_of[at] is not None and kind is not None:
            try:
                all_of[at] = decompress(all_of[at], kind, CONTENT_MAX)[:CONTENT_MAX]
            except ValueError:
                continue
    return pa.array(all_of, pa.binary())
