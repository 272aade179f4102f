"""The numbers of the remoting protocol, by name."""

from __future__ import annotations

from rmqtool.formats.remoting import STORED, ResponseCode, code_name


def test_a_code_is_told_by_the_brokers_name_for_it() -> None:
    assert code_name(ResponseCode.SYSTEM_BUSY) == "SYSTEM_BUSY"
    assert code_name(4711) == "code 4711"


def test_a_message_is_stored_although_a_flush_or_a_slave_was_late() -> None:
    assert {code.name for code in STORED} == {
        "SUCCESS", "FLUSH_DISK_TIMEOUT", "SLAVE_NOT_AVAILABLE", "FLUSH_SLAVE_TIMEOUT",
    }  # fmt: skip
