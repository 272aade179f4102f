"""Looks for a pattern in the bodies, keys or properties of all messages; whole batches are matched at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from rmqtool.errors import UsageError
from rmqtool.pipeline.enums import Where
from rmqtool.pipeline.tables.decoded_bodies import content_batches, searched_content
from rmqtool.pipeline.tables.schemas import message_schema

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
    """Parse a search.

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
    """A search; a row that is not an intact message may hide a match, and is returned too."""

    pattern: str
    where: Where = Where.BODY

    def read(self, schema: pa.Schema) -> pa.Schema:
        """The columns that are needed beside those of a schema."""
        needed = [message_schema("full").field(name) for name in (*_READ[self.where], "type", "finding")]
        return pa.schema([*schema, *(column for column in needed if column.name not in schema.names)])

    def matches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of batches that match or are not sound."""
        for batch in batches:
            if self.where is Where.BODY:
                contents = content_batches(batch["body"], batch["sys_flag"], searched_content)
                matched = [pc.match_substring_regex(bodies, self.pattern) for _, bodies in contents]
            else:  # keys and properties are lines of one text
                if self.where is Where.KEYS:
                    keys = pc.binary_join(pc.fill_null(batch["keys"], pa.scalar([], batch["keys"].type)), "\n")
                    lines = pc.binary_join_element_wise(keys, pc.fill_null(batch["unique_key"], ""), "\n")
                else:
                    named = pc.replace_substring(batch["properties_raw"], b"\x01", b"=")
                    lines = pc.replace_substring(named, b"\x02", b"\n")
                matched = [pc.match_substring_regex(lines, f"(?m){self.pattern}")]
            is_match = pc.fill_null(pa.concat_arrays(matched), fill_value=False)
            yield batch.filter(pc.or_(is_match, pc.is_valid(batch["finding"])))
