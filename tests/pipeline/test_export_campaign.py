"""Exports into one target are killed while others wait for it and the stores grow; each row is there once at the end.

`python -m tests.pipeline.export_campaign` runs a campaign of another length.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.pipeline.export_campaign import LIVE, TARGETS, campaign_in
from tests.pipeline.jobs.lake import install_spark
from tests.remote.s3_server import require_server

pytestmark = pytest.mark.spark
FORMS = ("delta", "iceberg")
FLEET = int(os.environ.get("RMQTOOL_FLEET", "200"))
KILLS = int(os.environ.get("RMQTOOL_KILLS", "50"))


def test_kills_of_three_runs_leave_each_row_once(tmp_path: Path) -> None:
    """A small part of the campaign: a kill of each run."""
    with campaign_in(tmp_path / "campaign", "local", tmp_path) as campaign:
        campaign.run(3)


@pytest.mark.slow
@pytest.mark.s3
@pytest.mark.parametrize("target", TARGETS)
def test_a_campaign_of_kills_leaves_each_row_once(
    tmp_path: Path, target: str, record_property: Callable[[str, object], None]
) -> None:
    if target == "s3":
        require_server()
    if target in FORMS:
        install_spark(tmp_path)
    with campaign_in(tmp_path / "campaign", target, tmp_path) as campaign:
        record_property("figure", campaign.run(KILLS))


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_a_fleet_beside_live_brokers_ends_with_each_business_message_once(
    tmp_path: Path, form: str, record_property: Callable[[str, object], None]
) -> None:
    install_spark(tmp_path)
    with campaign_in(tmp_path / "campaign", form, tmp_path, FLEET - len(LIVE)) as campaign:
        record_property("figure", campaign.run(20, batches=20))
