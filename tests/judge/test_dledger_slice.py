"""A slice of the judge's stores of DLedger: real brokers agree with rmqtool about stores that nobody prepared."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.toolchain import require_tools
from tests.judge.groups.run import run_group_case
from tests.judge.worker import Worker

pytestmark = pytest.mark.broker
SEED, CASES = 5, 12


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    require_tools()
    worker = Worker(tmp_path_factory.mktemp("judge"), None)
    yield worker
    worker.close()


@pytest.mark.parametrize("number", range(CASES))
def test_rmqtool_and_brokers_agree(worker: Worker, tmp_path: Path, number: int) -> None:
    case = run_group_case(SEED, number, worker.judge_of, tmp_path)
    assert case.disagreements == [], case.summary
