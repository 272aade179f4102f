"""The settings that each broker version reads from its properties file, and how it parses their values.

`settings.txt` has them as the published classes have them: every method `setName` with one argument is a setting, which
`MixAll#properties2Object` calls. A name that a version does not have is skipped without a word.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Final, NamedTuple

from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.rules.versions import is_between
from rmqtool.formats.java_properties import java_trim, parse_java_boolean, parse_java_double, parse_java_integer
from rmqtool.store.config.broker_conf import ANY_VERSION, BrokerConf, ReadSettings

JavaValue = str | bool | int | float
_BITS: Final = {"int": 32, "long": 64}


class Setting(NamedTuple):
    """A setting of brokers.

    Attributes:
        group: the class that has it.
        kind: int, long, double, boolean, text, or the words that it may be, as A|B.
        effect: on what a start finds and serves: simulated, named (as not simulated), or none.
        ranges: the first and the last release of each range of versions that read it; None for all later ones.
    """

    name: str
    group: str
    kind: str
    effect: str
    ranges: tuple[tuple[str, str | None], ...]

    def value(self, text: str, *, trims_texts: bool) -> JavaValue | None:
        """The broker's value for a text; None where it keeps its default."""
        if self.kind in _BITS:
            return parse_java_integer(text, _BITS[self.kind])
        if self.kind == "double":
            return parse_java_double(text)
        if self.kind == "boolean":
            return parse_java_boolean(text)
        text = java_trim(text) if trims_texts else text
        return text if self.kind == "text" or text in self.kind.split("|") else None

    @property
    def readers(self) -> str:
        """The versions that read it, as a part of a sentence."""
        texts = [f"{first} and later" if last is None else first if first == last else f"{first} to {last}"
                 for first, last in self.ranges]  # fmt: skip
        return ", ".join(texts)


@cache
def all_settings() -> Mapping[str, Setting]:
    """Every setting of every version, by its name."""
    settings: dict[str, Setting] = {}
    group = ""
    for line in files(__package__).joinpath("settings.txt").read_text(encoding="ascii").splitlines():
        if line.startswith("["):
            group = line.strip("[]")
        elif line and not line.startswith("#"):
            name, kind, effect, *texts = line.split()
            ranges = []
            for first, separator, last in (text.partition("-") for text in texts):
                ranges.append((first, (last or None) if separator else first))
            settings[name] = Setting(name, group, kind, effect, tuple(ranges))
    return MappingProxyType(settings)


@cache
def settings_of(version: str) -> Mapping[str, Setting]:
    """The settings that a version reads, by their names."""
    return MappingProxyType(
        {
            name: one
            for name, one in all_settings().items()
            if any(is_between(version, first, last) for first, last in one.ranges)
        }
    )


def read_settings(rules: BrokerRules | None) -> ReadSettings:
    """How a version reads its settings; None for an unknown version."""
    if rules is None:
        return ANY_VERSION
    return ReadSettings(
        settings_of(rules.version).keys(), rules.trims_settings, rules.multiple_log_paths, rules.log_is_below_root
    )


def unread_settings(properties: Mapping[str, str], rules: BrokerRules) -> Iterator[str]:
    """Settings that mean nothing to a version, as sentences."""
    known = settings_of(rules.version)
    for name in properties:
        if name in known:
            continue
        setting, nearest = all_settings().get(name), nearest_setting(name, rules.version)
        readers = f"which {setting.readers} read" if setting is not None else "which no version reads"
        meant = f"; it reads {nearest}" if nearest is not None else ""
        yield f"{name} means nothing to {rules.version}, {readers}{meant}"


_NUMBERS: Final = {"int": "a number of 32 bits", "long": "a number of 64 bits", "double": "a number"}


def value_problems(conf: BrokerConf, rules: BrokerRules | None) -> Iterator[str]:
    """Values that a version does not take, or that no file can have, as sentences; None for any version."""
    known = settings_of(rules.version) if rules is not None else all_settings()
    for name, text in conf.properties.items():
        setting = known.get(name)
        if setting is not None and setting.value(text, trims_texts=conf.reads.trims_texts) is None:
            expected = _NUMBERS.get(setting.kind) or f"one of {', '.join(setting.kind.split('|'))}"
            yield f"{name}={text!r} is not {expected}; the broker uses its default"
        if name in conf.odd_sizes:
            yield f"{name}={text!r} leaves no room in a file"


def nearest_setting(name: str, version: str | None = None) -> str | None:
    """The setting that is most like a name that no version has; None where none is like it."""
    names = all_settings().keys() if version is None else settings_of(version).keys()
    by_small = {one.lower(): one for one in names}
    near = difflib.get_close_matches(name.lower(), by_small, 1, 0.75)
    return by_small[near[0]] if near else None
