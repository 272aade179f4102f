"""Records that every version takes for good without a second look: found by one forecast, passed over by the others.

After a clean stop most versions read the last files of the log only to see where they end.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from rmqtool.engine.dispatch.queue_entries import Rows
from rmqtool.formats import commitlog, system_flag
from rmqtool.scan import columns
from rmqtool.scan.log import ScanOptions
from rmqtool.scan.rules import Verdict

_HOST_BITS: Final = system_flag.BORN_HOST_V6 | system_flag.STORE_HOST_V6


def odd_rows(rows: Rows) -> NDArray[np.intp]:
    """Numbers of the rows at which some version may see something else than a good record."""
    odd = (rows["verdict"] != Verdict.GOOD) | (rows["magic"] != commitlog.MAGIC_V1)
    odd |= (rows["sys_flag"] & _HOST_BITS) != 0
    odd |= (rows["features"] & columns.INNER_BATCH_NUMBERS) != 0
    return np.flatnonzero(odd)


class PlainRecords:
    """How far the files of one log are known to begin with such records; any thread may ask and tell."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, tuple[int, ...], bool], int] = {}

    def last(self, name: str, options: ScanOptions) -> int:
        """Physical offset of the last such record of a file that is known; -1 without any."""
        return self._last.get(_key(name, options), -1)

    def note(self, name: str, options: ScanOptions, physical_offset: int) -> None:
        """Remember that a file holds nothing else up to the record that begins here."""
        self._last[_key(name, options)] = physical_offset


def _key(name: str, options: ScanOptions) -> tuple[str, tuple[int, ...], bool]:
    """What decides whether a record is good."""
    return name, tuple(options.delays_ms), options.record_crc
