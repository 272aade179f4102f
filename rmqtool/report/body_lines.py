"""A body as lines for a person, as it is and as a decoder reads it; the lines are not escaped yet."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def body_lines(row: Mapping[str, Any]) -> list[str]:
    """The body of a row that has `BODY_FIELDS`."""
    if row["body_error"] is not None:
        return [f"(no body shown: {row['body_error']})"]
    body = row["body"]
    if row["body_encoding"] == "json":
        body = json.dumps(body, indent=2, ensure_ascii=False)
    lines = str(body).split("\n") if body != "" else ["(empty)"]
    if row["body_truncated"]:
        lines.append("(longer than the limit, cut here)")
    return lines


def decoded_lines(row: Mapping[str, Any]) -> list[str]:
    """Lines for the decoded body of a row that has `DECODED_FIELDS`; empty without a decoder."""
    lines = []
    if row["decoded"] is not None or (row["decoder"] is not None and row["decoder_error"] is None):
        value = row["decoded"]
        text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
        lines = [f"decoded ({row['decoder']}):", *text.split("\n")]
    if row["decoder_error"] is not None and row["decoder_error"] != row["body_error"]:
        by = f" by {row['decoder']}" if row["decoder"] is not None else ""
        lines.append(f"(not decoded{by}: {row['decoder_error']})")
    return lines


def shows_body(row: Mapping[str, Any]) -> bool:
    """True if the body has more to show than the decoder's result."""
    return row.get("decoder") is None or row["body"] is not None or row["body_error"] is not None
