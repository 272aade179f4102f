"""Executors read a store elsewhere by themselves: the view goes to them, and no byte of the store by the driver."""

from __future__ import annotations

import pytest

from tests.commands.transcripts import rmqtool
from tests.conftest import Unpacked

pytestmark = pytest.mark.spark


def test_verify_on_spark_reads_a_store_elsewhere(golden: Unpacked) -> None:
    url = f"local://{golden('5.5.0-damage-zero-hole')}"
    here = rmqtool("verify", url, "--format", "json")
    there = rmqtool("verify", url, "--format", "json", "--master", "local[2]")
    assert here.code == there.code == 3
    assert there.out == here.out
