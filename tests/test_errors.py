"""Every error has the exit code of its kind."""

from __future__ import annotations

import pytest

from rmqtool import errors

CODES = {"UsageError": 2, "RefusedError": 5, "UnknownSizeError": 5}
KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_exit_codes(kind: type[errors.RmqtoolError]) -> None:
    assert issubclass(kind, errors.RmqtoolError)
    assert kind.exit_code == CODES.get(kind.__name__, 4)


def test_an_unknown_size_says_which_setting_it_is() -> None:
    error = errors.UnknownSizeError("text", "commitlog_file_size", 1 << 30)
    assert (str(error), error.setting, error.default) == ("text", "commitlog_file_size", 1 << 30)


def test_how_to_install_an_extra() -> None:
    assert errors.how_to_install("spark") == "install rmqtool[spark] (from a checkout: pip install '.[spark]')"
