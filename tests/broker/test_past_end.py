"""What a pull at and beyond a queue's end is answered: the same by the reader and by real brokers of each version."""

from pathlib import Path

import pytest

from rmqtool.engine.reading.reader import open_reader
from rmqtool.engine.rules.versions import rules_for
from rmqtool.store.directory import survey
from rmqtool.store.view import open_directory
from tests.broker.conftest import JudgeOf

CONFIG = {"mappedFileSizeCommitLog": 65536, "mappedFileSizeConsumeQueue": 600}
OFFSETS = [-1, 0, 2, 3, 4, 5, 1000]


@pytest.mark.parametrize("version", ["4.4.0", "4.9.7", "5.5.0"])
def test_a_pull_beyond_the_end_is_answered_as_by_the_broker(judge_of: JudgeOf, tmp_path: Path, version: str) -> None:
    with judge_of(version).open(tmp_path, CONFIG) as store:
        store.put(*[{"topic": "T", "queueId": 0, "body": b"x", "properties": {}} for _ in range(3)])
        store.wait_dispatched()
        rows = store.get("T", 0, OFFSETS)["rows"]
    with open_reader(survey(open_directory(tmp_path)), rules_for(version)) as reader:
        answers = [reader.get_message("T", 0, offset) for offset in OFFSETS]
    assert [(answer.status.value, answer.next_begin_offset) for answer in answers] == [(row[1], row[2]) for row in rows]
