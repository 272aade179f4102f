"""A folder in memory for the stores of a campaign, and a command line that is built once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.campaign.command import ready_commands


@pytest.fixture(autouse=True)
def _ready() -> Iterator[None]:
    with ready_commands():
        yield
