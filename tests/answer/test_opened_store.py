"""Command lines name the store, and the options without which it is not opened rightly, where they belong."""

from __future__ import annotations

import pytest

from rmqtool.answer.opened_store import CommandLine


@pytest.mark.parametrize(
    ("command", "options", "line"),
    [
        ("verify", "", "rmqtool verify /store"),
        ("rebuild --queues", "", "rmqtool rebuild /store --queues"),
        ("rebuild --queues --index", "--commitlog /disk", "rmqtool rebuild /store --queues --index --commitlog /disk"),
        ("info", "--broker-conf f", "rmqtool info /store --broker-conf f"),
    ],
)
def test_command_lines(command: str, options: str, line: str) -> None:
    assert CommandLine("/store", options)(command) == line
