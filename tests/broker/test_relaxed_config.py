"""Brokers read configuration that is not quite JSON as the table says by which rmqtool is tested."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.broker.broker import Judge
from tests.broker.whole import WholeBroker
from tests.store.relaxed_cases import BACKUP, CASES, VERSIONS, by_version

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_reads_what_the_table_says(judge_of: Callable[[str], Judge], tmp_path: Path, version: str) -> None:
    del judge_of  # only a whole broker reads the file
    file = tmp_path / "config/consumerOffset.json"
    file.parent.mkdir()
    read = {}
    with WholeBroker(version, tmp_path, {"broker.flushConsumerOffsetInterval": 10**9}) as broker:
        for name, (text, _) in CASES.items():
            # A broker from 5.3.4 on removes the file that it refuses.
            file.write_bytes(text.encode())
            file.with_name(f"{file.name}.bak").write_text(BACKUP)
            table = broker.load_offsets() or {}
            read[name] = {key: {int(queue): int(at) for queue, at in offsets.items()} for key, offsets in table.items()}
        broker.kill()  # the last file may have left it without a table, and so it could not stop
    assert read == {name: by_version(name)[VERSIONS.index(version)] for name in CASES}
