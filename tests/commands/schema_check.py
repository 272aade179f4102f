"""Checks JSON against the few words of JSON Schema that the project's schemas use; an unknown word is an error."""

from __future__ import annotations

from typing import Any

_TYPES = {"string": str, "object": dict, "array": list, "boolean": bool, "null": type(None)}
_KNOWN = {
    *("$schema", "$id", "title", "description", "type", "enum", "const", "oneOf", "items"),
    *("properties", "required", "additionalProperties", "propertyNames"),
}


def schema_errors(value: Any, schema: dict[str, Any], at: str = "") -> list[str]:
    """What is wrong with a value, as sentences."""
    assert schema.keys() <= _KNOWN, f"unknown words: {schema.keys() - _KNOWN}"
    found: list[str] = []
    if "oneOf" in schema:
        fits = [not schema_errors(value, option, at) for option in schema["oneOf"]].count(True)
        found += [] if fits == 1 else [f"{at}: fits {fits} of the alternatives: {value!r}"]
    if "const" in schema and value != schema["const"]:
        found.append(f"{at}: {value!r} is not {schema['const']!r}")
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{at}: {value!r} is none of {schema['enum']}")
    if "type" in schema:
        wanted = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        if not any(_is(value, name) for name in wanted):
            return [*found, f"{at}: {value!r} is not {' or '.join(wanted)}"]
    if isinstance(value, dict) and "properties" in schema:
        found += [f"{at}.{name}: missing" for name in schema["required"] if name not in value]
    if isinstance(value, dict):
        for name, part in value.items():
            if "propertyNames" in schema:
                found += schema_errors(name, schema["propertyNames"], f"{at}: the name")
            inner = schema.get("properties", {}).get(name, schema.get("additionalProperties", {}))
            found += (
                [f"{at}.{name}: not in the schema"] if inner is False else schema_errors(part, inner, f"{at}.{name}")
            )
    if isinstance(value, list) and "items" in schema:
        for number, part in enumerate(value):
            found += schema_errors(part, schema["items"], f"{at}[{number}]")
    return found


def _is(value: Any, name: str) -> bool:
    if name == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    if name == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, _TYPES[name])
