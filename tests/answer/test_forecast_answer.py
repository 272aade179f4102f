"""The next step after `forecast`: a repair where a start would lose something, and no claim about what was not read."""

from __future__ import annotations

from rmqtool.answer.answer import Assessment, MissingLog
from rmqtool.answer.forecast_answer import step_after_forecast
from rmqtool.answer.opened_store import CommandLine
from rmqtool.sides.unread import ReadBy, UnreadFiles

LINE = CommandLine("/store")


def test_after_forecast() -> None:
    assert step_after_forecast(LINE, Assessment(), "recover").reason.startswith("nothing to do")
    assert step_after_forecast(LINE, Assessment(lost=1), "recover").command == "rmqtool recover /store"
    assert step_after_forecast(LINE, Assessment(log_missing=MissingLog("no")), "recover").command is None
    unread = Assessment(not_looked_at=(UnreadFiles("a", "b", "any words", ReadBy.VERIFY),))
    assert step_after_forecast(LINE, unread, "recover").command == "rmqtool verify /store"
