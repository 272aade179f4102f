"""Which topics a broker's request processor takes from clients; real brokers: `tests/broker/test_front_door.py`."""

from __future__ import annotations

import pytest

from rmqtool.engine.append.validation import topic_refusal
from rmqtool.engine.rules.versions import rules_for


@pytest.mark.parametrize(
    ("version", "topic", "is_taken"),
    [
        ("5.3.3", "%RETRY%" + "g" * 120, True),
        ("5.3.3", "%RETRY%" + "g" * 121, False),
        ("5.4.0", "%RETRY%" + "g" * 248, True),
        ("5.4.0", "%DLQ%" + "g" * 251, False),
        ("5.5.0", "T" * 128, False),
        ("5.5.0", "T" * 127, True),
    ],
)
def test_topics_have_a_length_that_the_version_takes(version: str, topic: str, *, is_taken: bool) -> None:
    assert (topic_refusal(topic, rules_for(version)) is None) is is_taken
