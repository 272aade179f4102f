"""Replaces names of topics, groups and brokers, and addresses, by others of the same length, the same within a bundle.

A name is replaced by one with the same Java hash where there is one, because index and timer hold hashes of names.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any, Final

from rmqtool.evidence.hash_text import text_with_hash
from rmqtool.formats.java_text import java_hash
from rmqtool.store.directory import Store
from rmqtool.store.file_kinds import FileKind
from rmqtool.store.relaxed_json import JsonError, parse_relaxed_json
from rmqtool.store.source import read_range

_TOKEN: Final = re.compile(rb"[%|a-zA-Z0-9_\-]+")
_STRING: Final = re.compile(rb'(:\s*")([^"\\]*)(")')
_PREFIXES: Final = (
    b"%RETRY%", b"%DLQ%", b"%LMQ%", b"rmq_sys_REVIVE_LOG_", b"rmq_sys_SYNC_BROKER_MEMBER_", b"rmq_sys_wheel_timer",
)  # fmt: skip
_OWN: Final = re.compile(
    rb"(rmq_sys_|RMQ_SYS_|CID_RMQ_SYS_|CID_ONSAPI|CID_HOUSEKEEPING|SCHEDULE_TOPIC|TBW102|SELF_TEST_|OFFSET_MOVED|"
    rb"BenchmarkTest|TRANS_CHECK_MAX|TOOLS_CONSUMER|FILTERSRV_CONSUMER|__MONITOR|DefaultHeartBeat|\d+\Z)"
)
"""Names that every broker has, and numbers."""
_ROOTS: Final = {"consumequeue": 1, "consumequeue_ext": 1, "batchconsumequeue": 1, "compaction": 2}
"""Directories, and at what depth a directory below them has the name of a topic."""
_OWN_NAMES: Final = ("brokerName", "brokerClusterName", "dLegerGroup")
"""Settings of a broker that name it and what it belongs to."""
_TABLES: Final = ("topicConfigTable", "subscriptionGroupTable", "offsetTable")
_TRIALS: Final = 400
_LETTERS: Final = b"abcdefghijklmnopqrstuvwxyz"
_NAME_BYTES: Final = _LETTERS + _LETTERS.upper() + b"-%"


class HiddenNames:
    """The names of one bundle, each with what is shown in its place."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._shown: dict[bytes, bytes] = {}
        self._used: set[bytes] = set()

    def learn(self, store: Store, properties: Mapping[str, str]) -> None:
        """Note the names that directories, configuration and the broker's properties file have."""
        for setting in _OWN_NAMES:
            self.each(properties.get(setting, "").encode("utf-8", "surrogateescape"))
        for directory in store.directories:
            parts = directory.split("/")
            depth = _ROOTS.get(parts[0])
            if depth is not None and len(parts) > depth:
                self.name(parts[depth].encode("utf-8", "surrogateescape"))
        for entry in store.files.get(FileKind.CONFIG, ()):
            with store.view.open(entry.path) as source:  # type: ignore[attr-defined]
                raw = read_range(source, 0, source.size)
            for text in _names_of(raw):
                self.each(text.encode())

    def name(self, text: bytes) -> bytes:
        """What is shown in place of a name; a name that every broker has stays."""
        prefix = next((prefix for prefix in _PREFIXES if text.startswith(prefix)), b"")
        rest = text[len(prefix) :]
        if not rest or _OWN.match(text if not prefix else rest):
            return text
        if rest not in self._shown:
            self._shown[rest] = self._other(rest)
        return prefix + self._shown[rest]

    def topic(self, text: str) -> str:
        """The same of a name in a text of Python."""
        return self.name(text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")

    def each(self, text: bytes) -> bytes:
        """A text in which every word is a name."""
        return _TOKEN.sub(lambda match: self.name(match[0]), text)

    def strings(self, text: bytes) -> bytes:
        """JSON in which every text that is a value is a name."""
        return _STRING.sub(lambda match: match[1] + self.each(match[2]) + match[3], text)

    def known(self, text: bytes) -> bytes:
        """A text in which names that were replaced before are replaced."""
        return _TOKEN.sub(lambda match: self._known(match[0]), text)

    def value(self, value: Any) -> Any:
        """JSON in which the same is done to every text, keys of objects too."""
        if isinstance(value, str):
            return self.known(value.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")
        if isinstance(value, dict):
            return {self.value(key): self.value(one) for key, one in value.items()}
        return [self.value(one) for one in value] if isinstance(value, list | tuple) else value

    def path(self, path: str) -> str:
        """The path of a file, in which the directory of a topic is replaced."""
        parts = path.split("/")
        depth = _ROOTS.get(parts[0])
        return "/".join(
            self.topic(part) if number == depth else part if depth is not None or part.isdigit() else self.value(part)
            for number, part in enumerate(parts)
        )

    def address(self, raw: bytes) -> bytes:
        """Four or sixteen bytes in place of an IP address; a private one."""
        digest = hashlib.blake2b(raw, key=self._secret, person=b"host").digest()
        return b"\x0a" + digest[:3] if len(raw) == 4 else b"\xfd" + digest[: len(raw) - 1]

    def _known(self, token: bytes) -> bytes:
        prefix = next((prefix for prefix in _PREFIXES if token.startswith(prefix)), b"")
        shown = self._shown.get(token[len(prefix) :])
        return token if shown is None else prefix + shown

    def _other(self, text: bytes) -> bytes:
        """Letters with the same hash, else other ones; none of them twice."""
        target = java_hash(_characters(text)) & 0xFFFFFFFF
        for trial in range(2 * _TRIALS):
            choices = hashlib.shake_128(self._secret + b"%d" % trial + text).digest(4 * len(text) + 8)
            if trial < _TRIALS:
                solved = text_with_hash(target, [(_LETTERS[0], _LETTERS[-1])] * len(text), choices)
                if solved is None:
                    continue
                other = solved.encode()
            else:
                other = bytes(_LETTERS[byte % 26] for byte in choices[: len(text)])
            if other != text and other not in self._used:
                self._used.add(other)
                return other
        # So short a name that there are hardly more of its length.
        free = (bytes(letters) for letters in product(_NAME_BYTES, repeat=len(text)))
        other = next((other for other in free if other != text and other not in self._used), text)
        self._used.add(other)
        return other


def _characters(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return text.decode("ascii", "replace")


def _names_of(raw: bytes) -> Iterable[str]:
    """Names of topics and groups in a configuration file."""
    try:
        document = parse_relaxed_json(raw.decode("utf-8", "replace"))
    except (JsonError, ValueError, RecursionError):
        return
    if isinstance(document, dict):
        for table in _TABLES:
            names = document.get(table)
            if isinstance(names, dict):
                yield from map(str, names)
