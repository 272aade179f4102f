"""Rebuilds a broker's configuration file from nothing else than what `config_kinds` allows in it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from rmqtool.store.config.config_kinds import CONFIG_KINDS, WORDS, Attributes, Map, Shape, Value
from rmqtool.store.relaxed_json import JsonError, parse_relaxed_json

_LONG: Final = 1 << 63
_NUMBER: Final = re.compile(r"[-+]?\d{1,19}", re.ASCII)
_SHAPES: Final = {kind.path.rpartition("/")[2]: kind.shape for kind in CONFIG_KINDS}
_COPIES: Final = (".bak", ".tmp")
_ATTRIBUTES: Final = frozenset(("queue.type", "cleanup.policy", "message.type"))


def shape_of(path: str) -> Shape | None:
    """Allowed content of a configuration file; None for an unknown file."""
    name = path.rpartition("/")[2]
    return _SHAPES.get(next((name.removesuffix(end) for end in _COPIES if name.endswith(end)), name))


def names_in_config(path: str, raw: bytes) -> list[bytes]:
    """Names of topics, groups and brokers in a file, each as often as it is there; those around an `@` as one."""
    shape, names = shape_of(path), list[bytes]()
    if shape is None:
        return names

    def note(name: bytes) -> bytes:
        names.append(name)
        return name

    try:
        Rebuild(note, lambda text: text).text(raw, shape)
    except JsonError:
        return []
    return names


@dataclass(frozen=True)
class Rebuild:
    """Makes a configuration file again.

    Attributes:
        name: what is shown in place of a text that consists of names.
        letters: what is shown in place of any other text.
    """

    name: Callable[[bytes], bytes]
    letters: Callable[[bytes], bytes]

    def text(self, raw: bytes, shape: Shape) -> bytes:
        """The file's JSON, with the declared parts only, as compact as a broker's parser takes it.

        Raises:
            JsonError: it is no JSON of this shape.
        """
        try:
            value = parse_relaxed_json(raw.decode("utf-8", "replace"))
            return _written(self._value(value, shape)).encode("utf-8", "replace")
        except (ValueError, RecursionError) as error:
            raise JsonError("not the JSON of such a file") from error

    def _value(self, value: Any, shape: Shape) -> Any:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int | float) and isinstance(shape, Value):
            return value if abs(value) <= _LONG else 0
        if isinstance(value, str) and isinstance(shape, Value):
            return self._string(value, shape)
        if isinstance(value, list) and isinstance(shape, list):
            return [self._value(one, shape[0]) for one in value]
        if isinstance(value, dict) and isinstance(shape, Map | Attributes | dict):
            return dict(self._members(value, shape))
        raise ValueError("a value of another shape")

    def _members(self, value: dict[Any, Any], shape: Map | Attributes | dict[str, Shape]) -> Iterator[tuple[Any, Any]]:
        for key, one in value.items():
            if isinstance(shape, Map):
                yield self._key(key, with_queue=shape.with_queue), self._value(one, shape.values)
            elif isinstance(shape, Attributes):
                yield key if key in _ATTRIBUTES else self._shown(str(key), self.letters), self._value(one, Value.WORD)
            elif key in shape:
                yield key, self._value(one, shape[key])

    def _key(self, key: str | int, *, with_queue: bool) -> str | int:
        if isinstance(key, int):
            return key if abs(key) <= _LONG else 0
        name, mark, number = key.rpartition("_")
        if with_queue and mark and _NUMBER.fullmatch(number):
            return f"{self._shown(name, self.name)}_{number}"
        return self._shown(key, self.name)

    def _string(self, text: str, shape: Value) -> str:
        if shape is Value.NAME:
            return self._shown(text, self.name)
        is_kept = shape is not Value.TEXT and (text in WORDS or _NUMBER.fullmatch(text) is not None)
        return text if is_kept or not text else self._shown(text, self.letters)

    @staticmethod
    def _shown(text: str, show: Callable[[bytes], bytes]) -> str:
        return show(text.encode("utf-8", "replace")).decode("utf-8", "replace")


def _written(value: Any) -> str:
    """JSON with unquoted numbers as keys, as a broker writes its maps."""
    if isinstance(value, dict):
        members = (f"{key if isinstance(key, int) else json.dumps(key)}:{_written(one)}" for key, one in value.items())
        return f"{{{','.join(members)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(_written, value))}]"
    return json.dumps(value, ensure_ascii=False)
