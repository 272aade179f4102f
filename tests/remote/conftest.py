"""Tests that need the S3 server say so where it is not installed; in CI that is an error."""

import pytest

from tests.remote.s3_server import require_server


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("s3") is not None:
        require_server()
