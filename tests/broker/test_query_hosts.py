"""Queries by key where a host in a record has no possible port: the broker cannot decode the record."""

from pathlib import Path

import pytest

from rmqtool.engine.reading.reader import open_reader
from rmqtool.engine.rules.versions import rules_for
from rmqtool.store.directory import survey
from rmqtool.store.view import open_directory
from tests.broker.conftest import JudgeOf

CONFIG = {"mappedFileSizeCommitLog": 65536, "mappedFileSizeConsumeQueue": 600, "maxHashSlotNum": 10, "maxIndexNum": 90}
BORN_PORT_AT, STORE_PORT_AT = 52, 68
CHANGES = [(BORN_PORT_AT, -1), (STORE_PORT_AT, -1), (BORN_PORT_AT, 65536), (STORE_PORT_AT, 65535), (STORE_PORT_AT, 0)]


@pytest.mark.parametrize("version", ["4.4.0", "5.5.0"])
def test_only_what_the_broker_decodes_is_served_first(judge_of: JudgeOf, tmp_path: Path, version: str) -> None:
    """All have one key in common, and each has another one of its own."""
    judge = judge_of(version)
    with judge.open(tmp_path, CONFIG) as store:
        answers = store.put(*[
            {"topic": "T", "queueId": 0, "body": b"x", "properties": {"KEYS": f"all own-{number}"}}
            for number in range(len(CHANGES))
        ])  # fmt: skip
        store.wait_dispatched()
    with (tmp_path / f"commitlog/{0:020d}").open("r+b") as log:
        for (position, port), answer in zip(CHANGES, answers, strict=True):
            log.seek(answer["physicalOffset"] + position)
            log.write(port.to_bytes(4, "big", signed=True))
    keys = ["all", *(f"own-{number}" for number in range(len(CHANGES)))]
    with judge.open(tmp_path, CONFIG) as store:
        theirs = {key: store.query("T", key, count=32)["served"] for key in keys}
    with open_reader(survey(open_directory(tmp_path)), rules_for(version)) as reader:
        ours = {key: [found.physical_offset for found in reader.query_message("T", key).messages] for key in keys}
    assert ours == theirs
    assert [bool(theirs[f"own-{number}"]) for number in range(len(CHANGES))] == [False, False, False, True, True]
