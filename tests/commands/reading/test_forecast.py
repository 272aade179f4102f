"""A forecast takes from the broker's configuration what decides about its start."""

from __future__ import annotations

from dataclasses import fields

import pytest

from rmqtool.commands.reading.forecast import forecast_options
from rmqtool.forecast.options import ForecastOptions
from rmqtool.store.config.broker_conf import broker_conf

DEFAULTS = ForecastOptions()


@pytest.mark.parametrize(
    ("key", "value", "option", "expected"),
    [
        ("checkCRCOnRecover", "false", "check_crc", False),
        ("forceVerifyPropCRC", "true", "record_crc", True),
        ("checkCommitLogOffsetOnRecover", "true", "check_physical_offset", True),
        ("recheckReputOffsetFromCq", "true", "recheck_queues", True),
        ("commitLogRecoverMaxNum", "13", "recover_files_max", 13),
        ("commitLogRecoverMaxNum", "many", "recover_files_max", None),
        ("messageIndexSafe", "true", "message_index_safe", True),
        ("messageIndexEnable", "false", "index_enabled", False),
        ("enableMultiDispatch", "false", "multi_dispatch", False),
        ("enableLmq", "false", "lmq", False),
        ("enableConsumeQueueExt", "false", "extensions", False),
        ("brokerRole", "SLAVE", "is_slave", True),
    ],
)
def test_one_setting_changes_one_option(key: str, value: str, option: str, expected: object) -> None:
    options = forecast_options(broker_conf({key: value}))
    assert getattr(options, option) == expected
    names = {field.name for field in fields(options) if field.compare} - {option}
    assert {name: getattr(options, name) for name in names} == {name: getattr(DEFAULTS, name) for name in names}


def test_without_a_configuration_the_defaults_hold() -> None:
    assert forecast_options(None) == forecast_options(broker_conf({})) == DEFAULTS
