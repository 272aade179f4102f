"""Decides which names of topics, groups and brokers a bundle shows, and replaces all others by some of the same length.

A name is shown that a directory or a database has, or that two places of the configuration or two records have: one
that a single one has may be a piece of a message that damage wrote there. With `hides`, no name is shown. A name is
replaced by one with the same Java hash where there is one, because index and timer hold hashes of names.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from itertools import product
from typing import Final

from rmqtool.engine.queues.kinds import queue_names
from rmqtool.errors import UnreadableError
from rmqtool.evidence.hash_text import text_with_hash
from rmqtool.evidence.rebuild_config import names_in_config
from rmqtool.formats.commitlog import MAGIC_BLANK
from rmqtool.formats.java_text import java_hash
from rmqtool.scan.log import open_log
from rmqtool.scan.rules import Verdict
from rmqtool.store.config.config_json import SIZE_MAX
from rmqtool.store.config.config_kinds import STORED
from rmqtool.store.config.read_config import StoreConfigs
from rmqtool.store.directory import Store
from rmqtool.store.file_kinds import FileKind
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
"""Directories, with the depth at which a directory below them has the name of a topic."""
_OWN_NAMES: Final = ("brokerName", "brokerClusterName", "dLegerGroup")
"""Settings of a broker with its name and its cluster's."""
_PLACES_MIN: Final = 2
"""Places of the configuration, or records, that have a name which is shown."""
_TRIALS: Final = 400
_LETTERS: Final = b"abcdefghijklmnopqrstuvwxyz"
_NAME_BYTES: Final = _LETTERS + _LETTERS.upper() + b"-%"


class BundleNames:
    """The names of one bundle, each with its replacement.

    Attributes:
        hides: whether names that are known, and addresses, are replaced too.
    """

    def __init__(self, secret: bytes, *, hides: bool = True) -> None:
        self.hides = hides
        self._secret = secret
        self._known_names: set[bytes] = set()
        self._shown: dict[bytes, bytes] = {}
        self._used: set[bytes] = set()

    def learn(self, store: Store, properties: Mapping[str, str]) -> None:
        """Note the names that directories, configuration and the broker's properties file have."""
        for setting in _OWN_NAMES:
            self._know(_TOKEN.findall(properties.get(setting, "").encode("utf-8", "surrogateescape")))
        for directory in store.directories:
            parts = directory.split("/")
            depth = _ROOTS.get(parts[0])
            if depth is not None and len(parts) > depth:
                self._know([parts[depth].encode("utf-8", "surrogateescape")])
        self._know(topic.encode("utf-8", "surrogateescape") for topic, _ in queue_names(store))
        for config in StoreConfigs(store.view).of(*STORED).values():
            if config.is_database:  # which has checksums of its own
                self._know(_words(names_in_config(config.path, json.dumps(config.value).encode())))
        places: Counter[bytes] = Counter()
        for entry in store.files.get(FileKind.CONFIG, ()):
            if entry.is_file and entry.size <= SIZE_MAX:
                with suppress(UnreadableError), closing(store.view.open(entry.path)) as source:
                    places.update(_words(names_in_config(entry.path, read_range(source, 0, source.size))))
        places.update(_topics_of_records(store))
        self._know(name for name, count in places.items() if count >= _PLACES_MIN)
        for name in places:
            self.name(name)  # so that sentences of answers have no other ones either

    def _know(self, names: Iterable[bytes]) -> None:
        for name in names:
            if self.hides:
                self.name(name)
            else:
                self._known_names.add(_split_prefix(name)[1])

    def name(self, text: bytes) -> bytes:
        """Replacement of a name; a name that every broker has stays."""
        prefix, rest = _split_prefix(text)
        if not rest or rest in self._known_names or _OWN.match(text if not prefix else rest):
            return text
        if rest not in self._shown:
            self._shown[rest] = self._other(rest)
        return prefix + self._shown[rest]

    def is_known(self, text: bytes) -> bool:
        """True if it is a name that the store has, or every broker."""
        prefix, rest = _split_prefix(text)
        is_own = _OWN.match(rest if prefix else text) is not None
        return bool(rest) and (is_own or rest in self._known_names or rest in self._shown)

    def topic(self, text: str) -> str:
        """Replacement of a name that is a `str`."""
        return self.name(text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")

    def each(self, text: bytes) -> bytes:
        """A text in which every word is a name."""
        return _TOKEN.sub(lambda match: self.name(match[0]), text)

    def strings(self, text: bytes) -> bytes:
        """JSON in which every text that is a value is a name."""
        return _STRING.sub(lambda match: match[1] + self.each(match[2]) + match[3], text)

    def known(self, text: bytes) -> bytes:
        """A text in which names that were replaced before are replaced."""

        def replaced(match: re.Match[bytes]) -> bytes:
            prefix, rest = _split_prefix(match[0])
            return match[0] if rest not in self._shown else prefix + self._shown[rest]

        return _TOKEN.sub(replaced, text)

    def text(self, text: str) -> str:
        """Replacement of a text that is a `str`."""
        return self.known(text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")

    def path(self, path: str) -> str:
        """The path of a file, in which the directory of a topic is replaced."""
        parts = path.split("/")
        depth = _ROOTS.get(parts[0])
        return "/".join(
            self.topic(part) if number == depth else part if depth is not None or part.isdigit() else self.text(part)
            for number, part in enumerate(parts)
        )

    def address(self, raw: bytes) -> bytes:
        """Four or sixteen bytes in place of an IP address: a private one, or an IPv4 address itself."""
        if len(raw) == 4 and not self.hides:
            return raw
        digest = hashlib.blake2b(raw, key=self._secret, person=b"host").digest()
        return b"\x0a" + digest[:3] if len(raw) == 4 else b"\xfd" + digest[: len(raw) - 1]

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


def _topics_of_records(store: Store) -> Counter[bytes]:
    """Names of topics in records that pass their checks, with the number of records."""
    counts: Counter[bytes] = Counter()
    with open_log(store.view.open, store.commitlog) as table:
        for batch in table.batches():
            rows = batch.as_array()
            is_good = (rows["verdict"] == Verdict.GOOD) & (rows["magic"] != MAGIC_BLANK)
            for number, count in Counter(rows["topic_number"][is_good].tolist()).items():
                counts[batch.topics[number]] += count
    return counts


def _words(names: Iterable[bytes]) -> Iterator[bytes]:
    """Each name, and each part of those that are joined by an `@`."""
    for name in names:
        yield name
        yield from (word for word in _TOKEN.findall(name) if word != name)


def _characters(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return text.decode("ascii", "replace")


def _split_prefix(name: bytes) -> tuple[bytes, bytes]:
    """Prefix that brokers put before a name, and the name."""
    prefix = next((prefix for prefix in _PREFIXES if name.startswith(prefix)), b"")
    return prefix, name[len(prefix) :]
