"""A whole broker does not start if it needs the copy `.bak` of a configuration file and the copy is not JSON."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rmqtool.engine.rules.versions import rules_for
from rmqtool.forecast.load import LoadFailure, demand_side_stores
from rmqtool.store.config.read_config import StoreConfigs
from rmqtool.store.directory import survey
from rmqtool.store.view import open_directory
from tests.broker.broker import Judge
from tests.broker.program import JudgeError
from tests.broker.whole import WholeBroker

pytestmark = pytest.mark.slow

FILES = ("topics.json", "consumerOffset.json", "subscriptionGroup.json", "delayOffset.json")
CUT = '{"dataVersion":{'
STATES: dict[str, tuple[str | None, str | None, bool]] = {
    "both-cut": (CUT, CUT, False),
    "empty": ("", CUT, False),
    "absent": (None, CUT, False),
    "copy-empty": (CUT, "", True),
    "no-copy": (CUT, None, True),
}
"""The file, its copy, and whether a broker starts."""
FURTHER = [
    ("4.9.7", "consumerFilter.json", False),
    ("4.9.7", "consumerOrderInfo.json", True),
    ("5.5.0", "consumerFilter.json", False),
    ("5.5.0", "consumerOrderInfo.json", False),
    ("5.5.0", "topicQueueMapping.json", False),
]


def starts(version: str, path: Path) -> bool:
    try:
        WholeBroker(version, path).kill()
    except JudgeError:
        return False
    return True


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_the_forecast_is_what_a_broker_does(
    judge_of: Callable[[str], Judge], tmp_path: Path, version: str, file: str, state: str
) -> None:
    del judge_of
    own, backup, expected = STATES[state]
    check(version, tmp_path, file, own, backup, starts_expected=expected)


@pytest.mark.parametrize(("version", "file", "expected"), FURTHER)
def test_further_files_and_their_copies(
    judge_of: Callable[[str], Judge], tmp_path: Path, version: str, file: str, expected: bool
) -> None:
    del judge_of
    check(version, tmp_path, file, CUT, CUT, starts_expected=expected)


def check(
    version: str, tmp_path: Path, file: str, own: str | None, backup: str | None, *, starts_expected: bool
) -> None:
    for name in ("config", "commitlog"):
        (tmp_path / name).mkdir()
    for name, content in ((file, own), (f"{file}.bak", backup)):
        if content is not None:
            (tmp_path / "config" / name).write_text(content)
    try:
        view = open_directory(tmp_path)
        demand_side_stores(survey(view), rules_for(version), StoreConfigs(view))
        forecast = True
    except LoadFailure:
        forecast = False
    assert (forecast, starts(version, tmp_path)) == (starts_expected, starts_expected)
