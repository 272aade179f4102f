"""The judges: one process for each RocketMQ version, shared by the whole test run."""

from collections.abc import Callable, Iterator

import pytest

from tests.broker.broker import Judge
from tests.broker.toolchain import require_tools
from tests.broker.versions import ROUTINE

JudgeOf = Callable[[str], Judge]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent.name == "broker":
            item.add_marker(pytest.mark.broker)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Where no broker can run, all tests are skipped from this one place, and so with one line; in CI they fail."""
    if "judge_of" in getattr(item, "fixturenames", ()):
        require_tools()


@pytest.fixture(scope="session")
def judge_of() -> Iterator[JudgeOf]:
    """The judge of a version by its name; each is started when first asked for."""
    judges: dict[str, Judge] = {}

    def judge_of_version(version: str) -> Judge:
        if version not in judges:
            judges[version] = Judge(version)
        return judges[version]

    yield judge_of_version
    for judge in judges.values():
        judge.close()


@pytest.fixture(scope="session", params=ROUTINE)
def judge(request: pytest.FixtureRequest, judge_of: JudgeOf) -> Judge:
    """The judge of each routine version in turn."""
    return judge_of(request.param)
