"""A timer wheel of a wrong length stops a real, whole broker, but not one with `timerWheelEnable=false`."""

import os

import pytest

from tests import golden_stores
from tests.broker.program import JudgeError
from tests.broker.whole import WholeBroker
from tests.conftest import Unpacked

NAME = "broker-5.5.0-timer"

pytestmark = pytest.mark.slow


def test_only_a_broker_that_runs_its_timer_demands_the_wheel_s_length(golden_copy: Unpacked) -> None:
    path = golden_copy(NAME)
    os.truncate(path / "timerwheel", 1000)
    config = dict(golden_stores.broker_manifest(NAME)["config"])
    with pytest.raises(JudgeError, match="broker does not initialize"):
        WholeBroker("5.5.0", path, {**config, "timerWheelEnable": True})
    with WholeBroker("5.5.0", path, {**config, "timerWheelEnable": False}) as broker:
        assert broker.started["lastExit"] == "abnormal"
    assert (path / "timerwheel").stat().st_size == 1000
