"""What tests of lives share: the processes that run them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.broker.toolchain import require_tools
from tests.judge.worker import Worker


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    require_tools()
    worker = Worker(tmp_path_factory.mktemp("lives"), None)
    yield worker
    worker.close()
