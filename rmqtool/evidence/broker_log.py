"""The end of a broker's log for a bundle, with what is known of customers' texts replaced.

A broker writes what it likes into its log, so nothing proves that the rest holds no text of a customer.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from rmqtool.evidence.hidden_names import HiddenNames
from rmqtool.evidence.pseudonyms import Pseudonyms
from rmqtool.store.source import FileSource, read_range

LOG_MAX: Final = 4 << 20
"""Bytes of one log, its last ones."""
LOGS_MAX: Final = 16
_FIELDS: Final = re.compile(
    rb"(?P<name>body|properties|keys|key|tags|tag|uniqKey|transactionId)(?P<sign>\s*[=:]\s*)"
    rb"(?P<value>\{[^{}\n]*\}|\[[^\[\]\n]*\]|\"[^\"\n]*\"|[^\s,\]})]+)",
    re.IGNORECASE,
)
_ADDRESS: Final = re.compile(rb"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])")
_TOKEN: Final = re.compile(rb"[^\s,;:={}\[\]\"'()<>]+")
_PART: Final = re.compile(rb"[^#@/|&+?]+")
"""Of a token: brokers join topic and key, and group and client, by such characters."""


def end_of_log(path: Path, pseudonyms: Pseudonyms | None, log_max: int = LOG_MAX) -> bytes:
    """The last whole lines of a log.

    Args:
        pseudonyms: of the texts that the store's records hold; None leaves the lines as they are.

    Raises:
        UnreadableError: it is no plain file, or may not be read.
    """
    with FileSource.open(path) as source:
        size = source.size
        start = max(0, size - log_max)
        content = read_range(source, start, size - start)
    if size > log_max:
        content = content[content.find(b"\n") + 1 :]
    return content if pseudonyms is None else redact_lines(content, pseudonyms)


def redact_lines(content: bytes, pseudonyms: Pseudonyms) -> bytes:
    """Lines in which texts of records, and values of fields that hold such texts, are replaced."""
    fields = _FIELDS.sub(lambda match: match["name"] + match["sign"] + b"x" * len(match["value"]), content)
    lines = _TOKEN.sub(lambda match: _replaced(match[0], pseudonyms), fields)
    names = pseudonyms.names
    if names is None:
        return lines
    return _ADDRESS.sub(lambda match: _shown(match[0], names), names.known(lines))


def _replaced(token: bytes, pseudonyms: Pseudonyms) -> bytes:
    """What is shown in place of a token, or of the parts that it is joined of."""
    shown = pseudonyms.of_known(token)
    return shown if shown != token else _PART.sub(lambda match: pseudonyms.of_known(match[0]), token)


def _shown(address: bytes, names: HiddenNames) -> bytes:
    """What is shown in place of an IPv4 address."""
    numbers = [int(part) for part in address.split(b".")]
    return b".".join(b"%d" % byte for byte in names.address(bytes(numbers))) if max(numbers) < 256 else address
