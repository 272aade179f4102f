"""Rows of `dump`, held against their JSON schema, which is compiled once for all tests."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
from jsonschema.protocols import Validator

from tests.commands.transcripts import rmqtool

PATH = Path(__file__).parents[2] / "docs" / "schema" / "dump.json"


@cache
def _validator() -> Validator:
    schema = json.loads(PATH.read_text("utf-8"))
    kind = jsonschema.validators.validator_for(schema)
    kind.check_schema(schema)
    return kind(schema)


def validate_row(row: dict[str, Any]) -> None:
    """Raises jsonschema.ValidationError for a row that the schema does not describe."""
    _validator().validate(row)


def dumped(path: Path, *options: str) -> tuple[int, list[dict[str, Any]]]:
    """Exit code and rows of a store or file, each as the schema says."""
    ran = rmqtool("dump", path, "--format", "jsonl", *options)
    assert "internal error" not in ran.err
    rows = [json.loads(line) for line in ran.out.splitlines()]
    for row in rows:
        validate_row(row)
    return ran.code, rows
