"""Inputs that come from an S3 server which lies."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Final

from rmqtool.store import remote
from tests.campaign.doors.bounds import Input
from tests.remote.s3_server import KEYS

PORT: Final = "RMQTOOL_DOORS_PORT"
"""Where the server listens, for all workers."""
LINES: Final = (
    "info {} --format json", "verify {} --threads 1 --format json", "verify {} --depth structure --format json",
    "forecast {} --format json", "dump {} --format jsonl --body hex", "dump {} --type index --format jsonl",
    "get {} --topic orders --queue-id 0 --queue-offset 0 --count 9 --format json", "stats {}", "search {} a --in body",
    "report {} --html ../out/page.html", "dump {} --type config --format jsonl",
)  # fmt: skip


def make_remote_input(chosen: random.Random, folder: Path) -> Input:
    """A store on a server that lies; the bucket's name is the seed of its lies."""
    del folder
    bucket = f"lie-{chosen.getrandbits(48)}"
    url = f"s3://{bucket}/store?endpoint_override=127.0.0.1:{os.environ[PORT]}&scheme=http&region=us-east-1"

    def setup() -> None:
        os.environ.update(KEYS)
        remote.ATTEMPTS = 1  # type: ignore[misc]
        remote.REQUEST_TIMEOUT_S = 2.0  # type: ignore[misc]

    return Input([url if word == "{}" else word for word in chosen.choice(LINES).split()], setup=setup)
