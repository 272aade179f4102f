"""One suite through both readers: the `reader` fixture makes the plain or the compiled one."""

from __future__ import annotations

import pytest

from rmqtool.scan.compiled import CompiledReader
from rmqtool.scan.walk import PlainReader
from tests.scan.logs import MakeReader


@pytest.fixture(params=[PlainReader, CompiledReader], ids=["plain", "compiled"])
def reader(request: pytest.FixtureRequest) -> MakeReader:
    made: MakeReader = request.param
    return made
