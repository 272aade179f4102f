"""Tables of a configuration name topic, group and queue in columns of their own; nothing of it is left out."""

from __future__ import annotations

import io
from typing import Any

from rmqtool.report.tables import TableWriter, config_entries


def entries(content: Any) -> tuple[list[dict[str, Any]], Any]:
    rows, rest = config_entries({"type": "config", "file": "f", "content": content})
    return [{name: row[name] for name in row.keys() - {"type", "file"}} for row in rows], rest and rest["content"]


def test_an_offset_has_topic_group_and_queue() -> None:
    content = {
        "offsetTable": {"T@G": {0: 7, 1: 9}},
        "lmqOffsetTable": {"%LMQ%a@%LMQ%b": 3},
        "dataVersion": {"counter": 1},
    }
    rows, rest = entries(content)
    first = {"table": "offsetTable", "topic": "T", "group": "G", "queue_id": 0, "queue_offset": 7}
    light = {"table": "lmqOffsetTable", "topic": "%LMQ%a", "group": "%LMQ%b", "queue_id": 0, "queue_offset": 3}
    assert rows == [first, first | {"queue_id": 1, "queue_offset": 9}, light]
    assert rest == {"dataVersion": {"counter": 1}}


def test_levels_topics_groups_and_ordered_consumption() -> None:
    assert entries({"offsetTable": {1: 5}}) == (
        [{"table": "offsetTable", "delay_level": 1, "queue_offset": 5}],
        None,
    )
    assert entries({"topicConfigTable": {"T": {"perm": 6, "topicName": "T"}}})[0] == [
        {"table": "topicConfigTable", "topic": "T", "settings": {"perm": 6}}
    ]
    assert entries({"subscriptionGroupTable": {"G": {"groupName": "G", "retryMaxTimes": 16}}})[0] == [
        {"table": "subscriptionGroupTable", "group": "G", "settings": {"retryMaxTimes": 16}}
    ]
    assert entries({"table": {"T@G": {0: {"o": [5]}}}})[0] == [
        {"table": "table", "topic": "T", "group": "G", "queue_id": 0, "settings": {"o": [5]}}
    ]


def test_what_is_no_table_stays_as_it_is() -> None:
    odd: list[Any] = [7, [1], {}, {"offsetTable": []}, {"offsetTable": {}}, {"filterDataByTopic": {"T": {}}}]
    for content in odd:
        assert entries(content) == ([], content)
    assert entries({"offsetTable": {"T@G": None}})[0][0]["queue_offset"] is None


def test_each_kind_has_a_heading() -> None:
    stream = io.StringIO()
    content = {"offsetTable": {"T@G": {0: 7}}}
    TableWriter(stream, None).write({"type": "config", "file": "config/consumerOffset.json", "content": content})
    heading, line = stream.getvalue().splitlines()
    assert heading.split() == ["table", "topic", "group", "queue_id", "queue_offset", "file"]
    assert line.split() == ["offsetTable", "T", "G", "0", "7", "config/consumerOffset.json"]
