"""Options of a forecast from the broker's configuration; the defaults are the broker's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from rmqtool.formats.tags import parse_delay_levels
from rmqtool.scan.row_cache import RowCache
from rmqtool.store.config.broker_conf import BrokerConf

COUNT_WHOLE_LOG_UP_TO: Final = 8 << 30
ARRAY_MAX: Final = (1 << 31) - 3
"""Elements of the longest array that a Java machine makes."""


@dataclass(frozen=True)
class ForecastOptions:
    """Settings of the broker, and how much of the log is read besides the part that the broker reads.

    Attributes:
        delays_ms: of the broker's delay levels.
        why_not: why no broker starts with these settings, whatever the store holds.
        message_index_safe: `messageIndexSafe`.
        index_enabled: `messageIndexEnable` (and `indexFileWriteEnable`).
        count_index: whether to tell what the index would get and lack; what else a start does, does not depend on it.
        lists_queues: whether to tell where each queue begins, ends and continues.
        recover_files_max: `commitLogRecoverMaxNum`, None for the version's default.
        check_physical_offset: `checkCommitLogOffsetOnRecover`.
        check_crc: `checkCRCOnRecover`.
        record_crc: `forceVerifyPropCRC`.
        recheck_queues: `recheckReputOffsetFromCq`.
        multi_dispatch: `enableMultiDispatch`.
        lmq: `enableLmq`.
        extensions: `enableConsumeQueueExt`, where the store has extensions of its queues.
        is_slave: whether the broker is one; it does not skip what dispatch cannot read.
        heap_bytes: memory of the broker; a size field that asks for more ends versions that do not check it.
        count_whole_log: count lost messages over the whole log; None does so where it has at most 8 GiB of data, and
            else from the file on in which the broker's scan begins.
        count_from: count lost messages from this physical offset on, whatever `count_whole_log` says.
        damage_max: damaged places that are listed; more are counted only.
        cache: what is known of the log already.
    """

    delays_ms: Sequence[int] = field(default_factory=parse_delay_levels)
    why_not: str | None = None
    message_index_safe: bool = False
    index_enabled: bool = True
    count_index: bool = True
    lists_queues: bool = True
    recover_files_max: int | None = None
    check_physical_offset: bool = False
    check_crc: bool = True
    record_crc: bool = False
    recheck_queues: bool = False
    multi_dispatch: bool = True
    lmq: bool = True
    extensions: bool = True
    is_slave: bool = False
    heap_bytes: int = ARRAY_MAX
    count_whole_log: bool | None = None
    count_from: int | None = None
    damage_max: int = 1000
    cache: RowCache | None = field(default=None, compare=False, repr=False)

    @property
    def enters_index(self) -> bool:
        """True if new entries of the index are simulated."""
        return self.index_enabled and self.count_index


def forecast_options(conf: BrokerConf | None) -> ForecastOptions:
    """Forecast options from the broker's properties file."""
    options = ForecastOptions()
    if conf is None:
        return options
    if conf.delay_levels is not None:
        try:
            options = replace(options, delays_ms=parse_delay_levels(conf.delay_levels))
        except ValueError as error:
            options = replace(options, why_not=f"{conf.path}: {error}")
    return replace(
        options,
        message_index_safe=bool(conf.is_index_safe),
        index_enabled=conf.has_index is not False,
        recover_files_max=conf.recover_files_max,
        check_physical_offset=bool(conf.checks_physical_offset),
        check_crc=conf.checks_crc_on_recovery is not False,
        record_crc=bool(conf.needs_record_crc),
        recheck_queues=bool(conf.rechecks_queues),
        multi_dispatch=conf.has_multi_dispatch is not False,
        lmq=conf.has_light_queues is not False,
        extensions=conf.has_queue_extension is not False,
        is_slave=conf.broker_role == "SLAVE",
    )
