"""Batch queues whose base offsets are out of order: the unit that brokers give for each queue offset is ours too."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from rmqtool.engine.queues.queue import Queue
from rmqtool.engine.reading.reader import open_reader
from rmqtool.engine.rules.versions import rules_for
from rmqtool.formats.consumequeue import BATCH_UNIT
from rmqtool.store.directory import survey
from rmqtool.store.view import open_directory
from tests.broker.broker import Judge
from tests.broker.versions import VERSIONS
from tests.conftest import Unpacked
from tests.golden_stores import manifest

STORE = "5.5.0-inner-batch"
EACH = [pytest.param(v.name, marks=() if v.routine else pytest.mark.slow) for v in VERSIONS if v.name > "5.1"]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("version", EACH)
def test_the_search_ends_where_that_of_brokers_does(
    judge_of: Callable[[str], Judge], golden_copy: Unpacked, version: str, seed: int
) -> None:
    path, draw, config = golden_copy(STORE), np.random.default_rng(seed), dict(manifest(STORE).config)
    topics = config.pop("topics")
    for file in sorted(path.glob("batchconsumequeue/*/*/*")):
        units = np.frombuffer(file.read_bytes(), BATCH_UNIT.dtype).copy()
        count = int(np.count_nonzero(units["record_size"]))
        units["base_queue_offset"][: count - 1] = draw.integers(0, 12, max(0, count - 1))
        file.write_bytes(units.tobytes())
    with judge_of(version).open(path, config, topics) as store:
        queues = {(row["topic"], row["queueId"]): row for row in store.read(brief=True)["queues"]}
        with open_reader(survey(open_directory(path)), rules_for(version)) as reader:
            for name in reader.queues():
                assert pulled(reader.queue(*name)) == [row[:1] + row[3][:1] for row in queues[name]["messages"]]


def pulled(queue: Queue) -> list[list[int]]:
    rows, at = [], queue.min_queue_offset
    while at < queue.max_queue_offset:
        unit = queue.unit_at(at)
        assert unit is not None
        rows.append([at, unit.physical_offset])
        at = max(at + 1, unit.queue_offset + unit.message_count)
    return rows
