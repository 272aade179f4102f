"""Fuzzes the record judge: mutated records, scanned by both readers, which must agree and lose no record beside them.

An input is one record with one to four edits. Inputs lie side by side in a file, an untouched record behind each, so
that one scan takes 256 of them, and what a bad one does to its neighbour is seen. In a part of the inputs the CRC of
the body is made right again behind the edits, and the first field of the head is left alone, so that later rules are
reached.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from rmqtool.formats import commitlog
from rmqtool.formats.commitlog import BODY_CRC_AT, MAGIC_V1, MAGIC_V2, SYS_FLAG_AT
from rmqtool.formats.record_crc import masked_crc
from rmqtool.scan.compiled import CompiledReader
from rmqtool.scan.rules import KEEPS_ITS_LENGTH, Verdict
from rmqtool.scan.walk import PlainReader
from tests.fuzz.edits import edit_bytes
from tests.scan.logs import FIRST_STORE_TIMESTAMP_MS, LogBytes, Message, Scanned, log_bytes, scan
from tests.scan.strategies import SEGMENTS, SHORT_TOPICS

INPUTS: Final = 256
"""Mutated records of one scan."""
_LONG: Final = 600


@dataclass
class Tally:
    """What the inputs came to: verdicts of the places where they lie."""

    inputs: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        self.inputs += other.inputs
        self.verdicts += other.verdicts


@dataclass(frozen=True)
class Corpus:
    """A file of records of every variant, the even ones to be mutated; made from a seed."""

    seed: int

    @cached_property
    def log(self) -> LogBytes:
        chosen = random.Random(self.seed)
        messages = [self._message(chosen, number) for number in range(2 * INPUTS)]
        return log_bytes(
            messages,
            physical_offset=chosen.choice((0, 65536, 5 << 40)),
            tail=chosen.choice((8, 64, 5000)),
            with_record_crc=self.with_record_crc,
        )

    @property
    def with_record_crc(self) -> bool:
        return self.seed % 2 == 1

    @staticmethod
    def _message(chosen: random.Random, number: int) -> Message:
        magic = MAGIC_V1 if number % 2 else chosen.choice((MAGIC_V1, MAGIC_V1, MAGIC_V2))
        if number % 2:
            return Message(body=b"untouched %d" % number, store_timestamp_ms=FIRST_STORE_TIMESTAMP_MS + number)
        parts = chosen.sample(SEGMENTS, chosen.randrange(5))
        return Message(
            body=chosen.randbytes(chosen.choice((0, 1, 20, 100, _LONG))),
            topic=chosen.choice((*SHORT_TOPICS[:5], *([b"L" * 200] if magic == MAGIC_V2 else []))),
            properties=b"\x02".join(parts) + chosen.choice((b"", b"\x02")),
            sys_flag=chosen.choice((0, 0, 0x10, 0x20, 0x30)) | chosen.choice((0, 1, 4, 8, 12, 0x40)),
            magic=magic,
            store_timestamp_ms=FIRST_STORE_TIMESTAMP_MS + number,
        )


def mutated(corpus: Corpus, seed: int) -> LogBytes:
    """The corpus with its even records edited."""
    chosen = random.Random(seed)
    raw = bytearray(corpus.log.content)
    for begin, end in corpus.log.spans[::2]:
        is_mended = chosen.random() < 0.3
        for _ in range(1 + int(chosen.random() ** 2 * 4)):
            edit_bytes(chosen, raw, begin + (8 if is_mended else 0), end)
        if is_mended:
            _mend_crc(raw, begin, end)
    return corpus.log.with_content(bytes(raw))


def check_batch(corpus: Corpus, seed: int) -> Tally:
    """Scan 256 inputs with both readers.

    Raises:
        AssertionError: the readers differ, bytes are not accounted for, or an untouched record is gone.
    """
    log = mutated(corpus, seed)
    chosen = random.Random(~seed)
    # A window smaller than a record, smaller than the file, or larger than both.
    options = {
        "block_size": chosen.choice((500, 4096, 1 << 19)),
        "record_crc": corpus.with_record_crc,
        "more_follows": chosen.random() < 0.5,
    }
    plain = scan(log, PlainReader, **options)
    compiled = scan(log, CompiledReader, **options)
    assert plain == compiled, f"readers differ: corpus {corpus.seed}, seed {seed}"
    return _tally(log, plain, f"corpus {corpus.seed}, seed {seed}")


def _tally(log: LogBytes, found: Scanned, where: str) -> Tally:
    tally = Tally(INPUTS)
    rows = iter(found.rows)
    row = next(rows)
    for number, (begin, end) in enumerate(log.spans):
        while row.physical_offset + row.size <= log.physical_offset + begin:
            following = next(rows, None)
            if following is None:
                break
            row = following
        if number % 2 == 0:
            tally.verdicts[Verdict(row.verdict).name] += 1
            continue
        is_found = (row.physical_offset, row.size) == (log.physical_offset + begin, end - begin)
        # A record whose lengths all agree is taken at its word, and an edit may have made them all larger.
        is_covered = row.verdict in KEEPS_ITS_LENGTH or row.verdict in (Verdict.GOOD, Verdict.STALE)
        assert is_found or is_covered, f"record {number} is lost: {where}"
    return tally


def _mend_crc(raw: bytearray, begin: int, end: int) -> None:
    """Make the CRC right for the body that the record claims, where it claims one."""
    sys_flag_at = begin + SYS_FLAG_AT
    head = commitlog.head_size(int.from_bytes(raw[sys_flag_at : sys_flag_at + 4], "big", signed=True))
    body = begin + head
    length = int.from_bytes(raw[body - 4 : body], "big", signed=True)
    if body <= end and 0 < length <= end - body:
        raw[begin + BODY_CRC_AT : begin + BODY_CRC_AT + 4] = masked_crc(bytes(raw[body : body + length])).to_bytes(
            4, "big"
        )
