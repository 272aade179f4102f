"""`forecast` on what a broker does beside the commit log: compacted topics."""

from __future__ import annotations

import json
import os

from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked

NAME = "broker-5.5.0-compaction"


def test_a_compacted_topic_that_is_right_is_looked_at(golden: Unpacked) -> None:
    ran = rmqtool("forecast", golden(NAME), "--format", "json")
    found = json.loads(ran.out)
    assert (ran.code, found["verdict"], found["compaction"], found["not_looked_at"]) == (0, "ok", [], [])


def test_what_a_broker_makes_of_a_short_log_file_is_said(golden_copy: Unpacked) -> None:
    path = golden_copy(NAME)
    log = min(path.glob("compaction/compactionLog/*/*/0*"))
    os.truncate(log, 1000)
    found = json.loads(rmqtool("forecast", path, "--format", "json").out)
    assert found["verdict"] == "inconsistent"
    assert found["compaction"][0]["id"].startswith("compaction.")
    assert found["compaction"][0]["brokers"] in found["headline"]
