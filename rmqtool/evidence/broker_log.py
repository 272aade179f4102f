"""The end of a broker's log for a bundle, rebuilt from the parts of its lines that are recognized.

A broker writes what it likes into its log. What stays is the time, the level and the thread; numbers; names and
addresses that the bundle shows; names of classes of RocketMQ and of Java; and words of which brokers make their notes.
After the name of a field that holds a part of a message nothing of the entry stays, for nothing tells where it ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final

from rmqtool.evidence.pseudonyms import Pseudonyms
from rmqtool.store.source import FileSource, read_range

LOG_MAX: Final = 4 << 20
"""Bytes of one log, its last ones."""
LOGS_MAX: Final = 16
_START: Final = re.compile(
    rb"(?P<time>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?) (?P<level>[A-Z]{4,5}) (?P<thread>[\w-]{1,80}) - "
)
_DATE: Final = re.compile(rb"\d{4}-\d\d-\d\d[ T]")
_THREAD: Final = re.compile(
    rb"main|[A-Za-z]{2,30}(?:Service|Thread|Executor|Processor|Selector|Scheduler|Worker|Pool|Boss|thread)"
    rb"(?:[_-]\d{1,6}){0,3}"
)
_SECRET: Final = re.compile(
    rb"(?<![A-Za-z])(?:body|properties|property\w*|keys?|tags?|uniqKey|uniqueKey|transactionId|msg|message|payload|"
    rb"content|expression|subString|attributes|password|secret\w*|token|accessKey|signature)\s*[=:]",
    re.IGNORECASE,
)
_TOKEN: Final = re.compile(
    rb"(?P<code>(?<![\w.$])(?:org\.apache\.rocketmq|java|javax|jdk|sun|io\.netty|org\.rocksdb)"
    rb"(?:\.[A-Za-z_$][\w$]{0,63}){1,12}(?:\([A-Z]\w{0,63}\.java(?::\d{1,5})?\))?)"
    rb"|(?P<address>(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.]))"
    rb"|(?P<word>[%|\w-]+)",
    re.ASCII,
)
_NUMBER: Final = re.compile(rb"[-+]?\d{1,20}(?:-\d{1,20}){0,4}(?:ms|s|m|h|d|B|KB|MB|GB|K|M|G)?")
_FOREIGN: Final = bytes(byte if 0x20 <= byte < 0x7F or byte in b"\t\r\n" else ord("x") for byte in range(256))
"""Letters beyond ASCII are no word of a broker, and control characters none."""


def end_of_log(path: Path, pseudonyms: Pseudonyms | None) -> bytes:
    """The last whole lines of a log.

    Args:
        pseudonyms: of the texts that the store's records hold; None leaves the lines as they are.

    Raises:
        UnreadableError: it is no plain file, or may not be read.
    """
    with FileSource.open(path) as source:
        size = source.size
        start = max(0, size - LOG_MAX)
        content = read_range(source, start, size - start)
    if size > LOG_MAX:
        content = content[content.find(b"\n") + 1 :]
    return content if pseudonyms is None else b"".join(_rebuilt(content, pseudonyms))


def _rebuilt(content: bytes, pseudonyms: Pseudonyms) -> Iterator[bytes]:
    """Rebuild the lines, each with as many bytes as before."""
    is_hidden = True  # what stands before the first entry is the end of one
    for line in content.splitlines(keepends=True):
        start = _START.match(line)
        if start is not None or _DATE.match(line):
            is_hidden = False
        at = 0
        if start is not None and _is_word(start["level"]):
            at = start.end()
            thread = start["thread"]
            kept = thread if _THREAD.fullmatch(thread) else b"x" * len(thread)
            yield b"%s %s %s - " % (start["time"], start["level"], kept)
        secret = None if is_hidden else _SECRET.search(line, at)
        end = at if is_hidden else len(line) if secret is None else secret.start()
        yield _TOKEN.sub(lambda match: _shown(match, pseudonyms), line[at:end].translate(_FOREIGN))
        if secret is not None:
            yield secret[0]
            end = secret.end()
        rest = line[end:]
        text = rest.rstrip(b"\r\n")
        yield b"x" * len(text) + rest[len(text) :]
        is_hidden = is_hidden or secret is not None


def _shown(match: re.Match[bytes], pseudonyms: Pseudonyms) -> bytes:
    """Replacement of a recognized part, else as many letters."""
    token, names = match[0], pseudonyms.names
    if match["code"] is not None:
        return token
    if match["address"] is not None:  # or a number like it
        numbers = [int(part) for part in token.split(b".")]
        if max(numbers) > 255:
            return b"x" * len(token)
        return b".".join(b"%d" % byte for byte in names.address(bytes(numbers)))
    if names.is_known(token):
        return names.name(token)
    if _NUMBER.fullmatch(token) or (_is_word(token) and pseudonyms.of_known(token) == token):
        return token
    return b"x" * len(token)


def _is_word(word: bytes) -> bool:
    text = word.decode()
    return text in _words() or (text in (text.capitalize(), text.upper()) and text.lower() in _words())


@cache
def _words() -> frozenset[str]:
    """English words in small letters, and terms as they are written."""
    return frozenset(files(__package__).joinpath("log_words.txt").read_text(encoding="ascii").split())
