"""A wrong name gets the nearest ones, else all."""

from __future__ import annotations

from rmqtool.report.names import nearest, unknown_name

TOPICS = ("OrderEvents", "OrderPayments", "Audit")


def test_near_names_come_first_whatever_their_case() -> None:
    assert nearest("orderevent", TOPICS).startswith("; did you mean OrderEvents")
    assert nearest("AUDITS", TOPICS) == "; did you mean Audit?"


def test_all_names_are_listed_where_none_is_near() -> None:
    assert nearest("xyz", TOPICS) == ""
    assert unknown_name("topic", "xyz", TOPICS) == "no topic 'xyz'; there are OrderEvents, OrderPayments, Audit"
    assert unknown_name("topic", "Audt", iter(TOPICS)) == "no topic 'Audt'; did you mean Audit?"
