"""A topic's name survives the way into a directory's name and back, whatever its bytes are."""

from __future__ import annotations

import os

from hypothesis import given
from hypothesis import strategies as st

from rmqtool.formats.queue_name import topic_bytes, topic_text


@given(st.binary())
def test_the_name_is_that_of_the_file_system_and_comes_back(name: bytes) -> None:
    assert topic_text(name) == os.fsdecode(name)
    assert topic_bytes(topic_text(name)) == name
