"""Text files of controller mode: `epochFileCheckpoint`, where each master's epoch starts, and `brokerIdentity`.

Broker: `CheckpointFile#read`, `EpochFileCache`, `BrokerMetadata#readFromFile`.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from rmqtool.quantities import JAVA_INT_MAX, JAVA_LONG_MAX

EPOCHS: Final = "epochFileCheckpoint"
IDENTITY: Final = "brokerIdentity"
_CRC_MASK: Final = 0x7FFFFFFF
_UNCHECKED: Final = 0
"""The CRC of a file whose lines the broker does not check."""
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,40}", re.ASCII)
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_PARTS: Final = 2


@dataclass(frozen=True)
class Epochs:
    """The file as a broker reads it.

    Attributes:
        entries: epoch and physical offset of its first message, in the order of the lines.
        problem: why the broker does not use them, as a part of a sentence; None where it does.
        prevents_start: whether it then does not start, instead of reading the backup.
    """

    entries: tuple[tuple[int, int], ...] = ()
    problem: str | None = None
    prevents_start: bool = False


def parse_epochs(raw: bytes) -> Epochs:
    """Parse the file as a broker does: the number of entries, their CRC-32, and a line `epoch-offset` for each."""
    try:
        lines = _LINE_END.split(raw.decode("utf-8"))
    except UnicodeDecodeError:
        return Epochs(problem="it is not UTF-8")
    lines = lines[:-1] if not lines[-1] else lines
    count, crc = (_number(line, JAVA_INT_MAX) for line in (*lines, "", "")[:2])
    if count is None or crc is None:
        return Epochs(problem="its first two lines are not the numbers of entries and their CRC", prevents_start=True)
    entries = []
    for line in lines[2:]:
        parts = line.rstrip("-").split("-")
        if len(parts) != _PARTS:
            continue  # a broker skips it
        epoch, offset = _number(parts[0], JAVA_INT_MAX), _number(parts[1], JAVA_LONG_MAX)
        if epoch is None or offset is None:
            return Epochs(problem=f"the line {line[:60]!r} has something that is not a number", prevents_start=True)
        entries.append((epoch, offset))
    if crc not in (_UNCHECKED, crc_of(lines[2:])):
        return Epochs(problem="its CRC is wrong")
    if count != len(entries):
        return Epochs(problem=f"it has {len(entries)} entries and not {count}")
    return Epochs(tuple(entries))


def epochs_text(entries: Iterable[tuple[object, object]]) -> str:
    """The file as a broker writes it."""
    lines = [f"{epoch}-{start}" for epoch, start in entries]
    return "".join(f"{line}\n" for line in (len(lines), crc_of(lines), *lines))


def crc_of(lines: list[str]) -> int:
    """The CRC-32 of the lines with the entries, without its top bit."""
    return zlib.crc32("".join(f"{line}\n" for line in lines).encode()) & _CRC_MASK


def agreed_end(epochs: Mapping[int, int], log_end: int, others: Mapping[int, int], other_end: int) -> int | None:
    """Physical offset up to which two logs of a group are one by their epochs; a slave truncates its log there.

    Broker: `AutoSwitchHAClient#doTruncate`, `EpochFileCache#findConsistentPoint`.

    Args:
        epochs, others: where each epoch starts in both logs; at least one.
        log_end, other_end: physical offsets where the logs end.

    Returns:
        None where no epoch starts at the same offset in both: a slave then gets nothing from its master.
    """
    ends, other_ends = _epoch_ends(epochs, log_end), _epoch_ends(others, other_end)
    shared = [epoch for epoch, start in epochs.items() if others.get(epoch) == start]
    return min(ends[max(shared)], other_ends[max(shared)]) if shared else None


def identity_problem(raw: bytes) -> str | None:
    """Why a broker cannot read who it is (`cluster#broker#id`), as a part of a sentence; None where it can."""
    parts = raw.decode("utf-8", "replace").rstrip("#").split("#")
    if len(parts) <= _PARTS:
        return "it has no cluster, broker and id with a # between them"
    return None if _number(parts[_PARTS], JAVA_LONG_MAX) is not None else "its id is not a number"


def _epoch_ends(epochs: Mapping[int, int], log_end: int) -> dict[int, int]:
    """End of each epoch: the start of the next one; the last one ends with the log if it starts there or before."""
    numbers = sorted(epochs)
    ends = {epoch: epochs[following] for epoch, following in pairwise(numbers)}
    return ends | {numbers[-1]: log_end if epochs[numbers[-1]] <= log_end else JAVA_LONG_MAX}


def _number(text: str, maximum: int) -> int | None:
    number = int(text) if _NUMBER.fullmatch(text) else None
    return number if number is not None and -maximum - 1 <= number <= maximum else None
