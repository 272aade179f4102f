"""One line of a picture: a label, a strip, and the same in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rmqtool.report.page.strip import Bar


class Lane(NamedTuple):
    """What is drawn from `bars`; `text` says it to those who do not see the strip."""

    label: str
    bars: Sequence[Bar]
    text: str
