"""The broker's settings that a person names, in a file or one by one, and which of them are refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.rules.settings import all_settings, nearest_setting, value_problems
from rmqtool.errors import UsageError
from rmqtool.store.config.broker_conf import BrokerConf, ReadSettings, broker_conf, read_broker_conf, with_properties


def named_conf(
    path: Path | None, texts: Sequence[str], reads: ReadSettings, recorded: Mapping[str, str] | None = None
) -> BrokerConf | None:
    """What the broker's properties file says, and what a person says instead; None where nothing does.

    Args:
        texts: settings that go before those of the file, each as KEY=VALUE.
        recorded: the file's properties where there is no file.

    Raises:
        UnreadableError: the file may not be read, or is none.
        UsageError: a person names a setting that no version has.
    """
    refuse_unknown_settings(texts)
    conf = None if recorded is None else broker_conf(recorded, reads=reads)
    conf = read_broker_conf(path, reads) if path is not None else conf
    return with_properties(conf, texts, reads) if texts else conf


def refuse_bad_settings(conf: BrokerConf, rules: BrokerRules | None) -> None:
    """Refuse to write by values that the broker would not take, or that no file can have.

    Raises:
        UsageError: there is one.
    """
    for problem in value_problems(conf, rules):
        raise UsageError(f"{conf.path}: {problem}")


def refuse_unknown_settings(texts: Iterable[str], option: str = "--set") -> None:
    """Refuse what a person says of a setting that no version has, each as KEY=VALUE.

    Raises:
        UsageError: a name is none, and what it may have meant.
    """
    for text in texts:
        name, equals, _ = text.partition("=")
        if equals and (name := name.strip()) and name not in all_settings():
            nearest = nearest_setting(name)
            meant = f"; did you mean {nearest}?" if nearest is not None else ""
            raise UsageError(f"{option} {text}: no broker version has a setting of this name{meant}")
