"""A message that a queue leads to is called what `verify` calls the range in which it lies."""

from __future__ import annotations

import re

import pytest

from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked
from tests.verify.stores import verified


@pytest.mark.parametrize("name", ["4.9.7-damage-zero-hole", "5.5.0-damage-zero-hole"])
def test_each_message_of_a_hole_is_a_hole(golden: Unpacked, name: str) -> None:
    path = golden(name)
    (hole,) = [row for row in verified(path, name[:5])[1] if row.id == "commitlog.hole"]
    lost = re.findall(r"(\w+)/(\d+) at queue offset (\d+)", hole.message)
    assert len(lost) > 2
    for topic, queue_id, queue_offset in lost:
        ran = rmqtool("get", path, "--topic", topic, "--queue-id", queue_id, "--queue-offset", queue_offset)
        assert (ran.code, re.findall(r"bad: (\S+),", ran.out)) == (3, ["commitlog.hole"])
