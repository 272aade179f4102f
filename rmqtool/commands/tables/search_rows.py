"""The rows of `search` with their bodies decoded; the columns that this needs are not shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from rmqtool.report.bodies import BodyChoice, body_fields

DECODED_FROM: Final = ("compression", "properties", "body")
"""Columns of the table `messages`, beside those that are shown."""


def with_decoded(row: dict[str, Any], choice: BodyChoice) -> dict[str, Any]:
    """A row with the fields of a decoded body instead of what it was decoded from."""
    shown = {name: value for name, value in row.items() if name not in DECODED_FROM}
    return shown | body_fields(_FoundMessage(row), choice)


@dataclass(frozen=True)
class _FoundMessage:
    """A row as far as its body goes."""

    row: Mapping[str, Any]

    @property
    def body_length(self) -> int:
        return len(self.row["body"] or b"")

    @property
    def compression(self) -> str | None:
        kind: str | None = self.row["compression"]
        return kind

    @property
    def topic(self) -> str:
        return str(self.row["topic"])

    @property
    def queue_id(self) -> int:
        return int(self.row["queue_id"])

    @property
    def queue_offset(self) -> int:
        return int(self.row["queue_offset"])

    @property
    def properties(self) -> Mapping[str, str]:
        return dict(self.row["properties"] or {})

    def body(self, length_max: int) -> bytes:
        return bytes((self.row["body"] or b"")[:length_max])
