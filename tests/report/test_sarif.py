"""Findings as SARIF: levels, places as bytes of files, and names of any bytes."""

from __future__ import annotations

import json
from typing import Any

from rmqtool.report.check_formats import sarif_text

NOTHING = dict.fromkeys(
    ("file_position", "length", "physical_offset", "topic", "queue_id", "queue_offset", "repair", "upstream")
)


def result_of(**more: Any) -> dict[str, Any]:
    finding = {"id": "a.b", "severity": "warning", "file": "a/b", "message": "text", **NOTHING, **more}
    log = json.loads(sarif_text("1.0", [("a.b", "warning", "means")], [finding]))
    result: dict[str, Any] = log["runs"][0]["results"][0]
    return result


def test_rules_and_version_are_those_that_were_given() -> None:
    log = json.loads(sarif_text("1.2.3", [("a.b", "error", "means"), ("c.d", "note", "says")], []))
    driver = log["runs"][0]["tool"]["driver"]
    assert (log["version"], driver["version"]) == ("2.1.0", "1.2.3")
    assert [(rule["id"], rule["defaultConfiguration"]["level"]) for rule in driver["rules"]] == [
        ("a.b", "error"),
        ("c.d", "note"),
    ]


def test_a_place_in_a_file_is_a_region_of_bytes() -> None:
    location = result_of(file_position=10, length=5)["locations"][0]["physicalLocation"]
    assert location["region"] == {"byteOffset": 10, "byteLength": 5}
    assert "region" not in result_of()["locations"][0]["physicalLocation"]
    assert "region" not in result_of(file_position=-1)["locations"][0]["physicalLocation"]
    assert result_of(file_position=10)["locations"][0]["physicalLocation"]["region"]["byteLength"] == 0


def test_names_of_any_bytes_are_written() -> None:
    result = result_of(file="a b/\udce9", topic="t\udce9\x00", queue_id=0)
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "a%20b/%E9"
    assert result["properties"] == {"topic": "t\\udce9\\x00", "queue_id": 0}
