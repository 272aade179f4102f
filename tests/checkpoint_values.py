"""The values that a broker's flush rules allow in a checkpoint, worked out from what lies in the store beside it.

`StoreCheckpoint#flush`, `MappedFileQueue#flush`, `DefaultMessageStore.FlushConsumeQueueService`, `IndexService#flush`.
"""

from __future__ import annotations

import struct
from pathlib import Path

from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.formats.checkpoint import Checkpoint, parse_checkpoint
from rmqtool.formats.index import HEADER
from rmqtool.formats.tags import parse_delay_levels
from rmqtool.scan.log import LogFile, RecordTable, ScanOptions
from rmqtool.scan.rules import Verdict
from rmqtool.store.directory import Settings, survey
from rmqtool.store.view import open_directory


def checkpoint_trouble(root: Path, rules: BrokerRules, settings: Settings | None = None) -> list[str]:
    """The fields of a store's checkpoint that no run of a broker could have left beside these files."""
    store = survey(open_directory(root), settings)
    files = [LogFile(lambda path=segment.path: store.view.open(path), segment.start) for segment in store.commitlog]
    with RecordTable.of(files, ScanOptions(delays_ms=parse_delay_levels(), compiled=False)) as table:
        rows = [row for batch in table.batches() for row in batch.as_rows() if row.verdict == Verdict.GOOD]
    times = {0} | {row.store_timestamp_ms for row in rows}
    starts = {0} | {row.physical_offset for row in rows}
    found = parse_checkpoint((root / "checkpoint").read_bytes())
    allowed = Checkpoint.__dataclass_fields__.keys()
    values = {
        "commitlog_timestamp_ms": times,
        "consumequeue_timestamp_ms": times,
        "index_timestamp_ms": {0} | _full_index_ends(root, store.index_entry_count),
        "master_flushed_offset": {0},
        "confirm_physical_offset": starts if rules.checkpoint_field_count >= 5 else {0},
        "consumequeue_physical_offset": starts if rules.checkpoint_after_queue_flush else {0},
    }
    assert values.keys() == allowed
    return [f"{name} is {getattr(found, name)}" for name, fits in values.items() if getattr(found, name) not in fits]


def _full_index_ends(root: Path, entry_count: int | None) -> set[int]:
    """End times of the index files that became full."""
    ends = set()
    for path in sorted((root / "index").glob("[0-9]*")):
        _, end, _, _, _, next_number = struct.unpack(HEADER.struct_code, path.read_bytes()[:40])
        if entry_count is not None and next_number >= entry_count:
            ends.add(end)
    return ends
