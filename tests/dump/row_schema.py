"""The JSON schema of `dump`, compiled once for the rows of all its tests."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
from jsonschema.protocols import Validator

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
