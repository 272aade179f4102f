"""A first log file that somebody removed looks as if it had expired: what is said of it holds for both."""

from __future__ import annotations

import json

import pytest

from rmqtool.store.relaxed_json import parse_relaxed_json
from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked


@pytest.mark.parametrize("name", ["broker-4.9.7-mixed-clean", "broker-5.5.0-mixed-clean"])
def test_a_first_file_that_is_gone_is_not_said_to_have_expired(golden_copy: Unpacked, name: str) -> None:
    path, version = golden_copy(name), name.split("-")[1]
    min((path / "commitlog").iterdir()).unlink()
    offsets = path / "config/consumerOffset.json"
    table = parse_relaxed_json(offsets.read_text())
    groups = [one for one in table["offsetTable"] if one.endswith("@account-keepers")]
    table["offsetTable"] |= {one: dict.fromkeys(table["offsetTable"][one], 0) for one in groups}
    offsets.write_text(json.dumps(table))
    findings = json.loads(rmqtool("verify", path, "--broker-version", version, "--format", "json").out)["findings"]
    below = [one for one in findings if one["id"] == "consumequeue.below-log"]
    assert len(below) > 10
    assert all(one["message"].endswith(": the files have expired, or somebody removed them") for one in below)
    (unread,) = (one for one in findings if one["id"] == "config.consumer-offset-before-queue")
    assert "account-keepers" in unread["message"]
