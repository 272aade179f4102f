"""Redacts configuration files: names of topics and groups and all numbers stay, other texts are replaced in place."""

from __future__ import annotations

import re
from typing import Final

from rmqtool.evidence.pseudonyms import Pseudonyms
from rmqtool.evidence.redact_record import masked
from rmqtool.store.relaxed_json import JsonError, parse_relaxed_json

_TOKEN: Final = re.compile(
    rb"""(//[^\n]*|/\*(?:[^*]|\*(?!/))*+\*/)|"((?:[^"\\]|\\.)*+)"(\s*+:)?|'((?:[^'\\]|\\.)*+)'(\s*+:)?""", re.DOTALL
)
_WORDS: Final = frozenset(
    (b"SimpleCQ", b"BatchCQ", b"RocksDBCQ", b"DELETE", b"COMPACTION", b"SINGLE_TAG", b"MULTI_TAG", b"UNSPECIFIED",
     b"NORMAL", b"FIFO", b"DELAY", b"TRANSACTION", b"MIXED", b"LITE", b"TAG", b"SQL92", b"PULL", b"POP",
     b"true", b"false")
)  # fmt: skip
_NAME: Final = re.compile(rb"[%|a-zA-Z0-9_\-.$@]{1,255}\Z")
_NAMING_FIELDS: Final = frozenset(
    (b"topicName", b"groupName", b"topic", b"group", b"consumerGroup", b"bname", b"scope", b"queue.type",
     b"cleanup.policy", b"message.type", b"brokerName", b"clusterName")
)  # fmt: skip


def redact_config(raw: bytes, pseudonyms: Pseudonyms) -> bytes:
    """A file of `config/`, as many bytes as before; one that is no JSON is masked, which is none either."""
    try:
        parse_relaxed_json(raw.decode("utf-8", "replace"))
    except (JsonError, ValueError, RecursionError):
        return masked(raw)
    field = b""

    def replaced(match: re.Match[bytes]) -> bytes:
        nonlocal field
        if match[1] is not None:
            return b" " * len(match[1])
        group = 2 if match[2] is not None else 4
        text, is_field = match[group], match[group + 1] is not None
        if is_field:
            field = text
        is_name = not is_field and field in _NAMING_FIELDS and _NAME.match(text) is not None
        if is_field or is_name or text in _WORDS or text.isdigit():
            return _hidden(match[0], pseudonyms, is_name=is_name and text not in _WORDS)
        content = pseudonyms.letters(text) if text else text
        return match[0][: match.start(group) - match.start()] + content + match[0][match.end(group) - match.start() :]

    return _TOKEN.sub(replaced, raw)


def _hidden(text: bytes, pseudonyms: Pseudonyms, *, is_name: bool) -> bytes:
    if pseudonyms.names is None:
        return text
    return pseudonyms.names.each(text) if is_name else pseudonyms.names.known(text)
