"""The store time of a file's first record, whatever its hosts are; none where no record begins there."""

from __future__ import annotations

import pytest

from rmqtool.formats.commitlog import MAGIC_V1, MAGIC_V2
from rmqtool.scan.first_time import first_store_time_ms
from rmqtool.store.source import BytesSource
from tests.scan.logs import Message


@pytest.mark.parametrize("magic", [MAGIC_V1, MAGIC_V2])
@pytest.mark.parametrize("sys_flag", [0, 0x10, 0x20, 0x30])
def test_the_time_of_the_first_record(magic: int, sys_flag: int) -> None:
    record = Message(magic=magic, sys_flag=sys_flag, store_timestamp_ms=12345).record(0)
    assert first_store_time_ms(BytesSource("log", record)) == 12345


@pytest.mark.parametrize("length", [0, 4, 8, 40, 63])
def test_a_record_that_is_cut_before_its_time_has_none(length: int) -> None:
    assert first_store_time_ms(BytesSource("log", Message().record(0)[:length])) is None


@pytest.mark.parametrize("head", [bytes(200), b"\0\0\0\x40\xbb\xcc\xdd\xee" + bytes(200), b"x" * 200])
def test_what_is_no_message_has_no_time(head: bytes) -> None:
    assert first_store_time_ms(BytesSource("log", head)) is None


def test_a_disk_that_does_not_give_the_record_gives_no_time() -> None:
    class Broken(BytesSource):
        def read_into(self, position: int, buffer: memoryview) -> int:
            raise OSError(5, f"Input/output error at {position} of {len(buffer)}")

    assert first_store_time_ms(Broken("log", Message().record(0))) is None
