"""A store as a command opened it: its files, the broker whose rules apply to it, and command lines about it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rmqtool.engine.reading.version_evidence import UnreadSizes, unread_sizes
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.engine.rules.settings import read_settings
from rmqtool.errors import RefusedError
from rmqtool.store.config.broker_conf import BrokerConf
from rmqtool.store.directory import Store, survey
from rmqtool.store.log_owner import ForeignDirectory
from rmqtool.store.probe_lock import lock_report
from rmqtool.store.view import DirectoryView


@dataclass(frozen=True)
class CommandLine:
    """Makes command lines that a person can type next about one store: its name, and options it needs, as they are
    typed; commands that write accept a local one.
    """

    store: str
    options: str = ""
    is_local: bool = True

    def __call__(self, command: str) -> str:
        name, _, own = command.partition(" ")
        return " ".join(part for part in ("rmqtool", name, self.store, own, self.options) if part)


@dataclass(frozen=True)
class OpenedStore:
    """A surveyed store, and the broker whose rules apply to it."""

    store: Store
    rules: BrokerRules
    inferred: str | None = None
    """The releases that fit the store's files, as "5.5.0 to 5.5.1"; None where nothing shows a version."""
    evidence: tuple[str, ...] = ()
    """Evidence for the version, as sentences."""
    chosen: str = ""
    """Why these rules, as a sentence."""
    conf: BrokerConf | None = None
    is_version_known: bool = True
    """True if a person or the files show the version: a repair does not guess it."""
    given: frozenset[str] = frozenset()
    """Fields of the store's settings that a person gave, which go before those of the properties file."""
    foreign: ForeignDirectory | None = None
    """A directory in which files of the store are looked for, and which is another store's; see `foreign_directory`."""
    fitting: tuple[str, ...] = ()
    """Of the releases that fit the files, those whose starts may differ; empty where a person chose the version."""

    def at(self, rules: BrokerRules) -> OpenedStore:
        """The store for a broker of another version, with those settings that this version reads."""
        if self.conf is None:
            return replace(self, rules=rules)
        conf = self.conf.read_as(read_settings(rules))
        before, after, settings = vars(self.conf.settings()), vars(conf.settings()), self.store.settings
        changed = {name: value for name, value in after.items() if value != before[name] and name not in self.given}
        if not changed:
            return replace(self, rules=rules, conf=conf)
        settings = replace(settings, **changed)
        is_log_elsewhere = settings.log_directories != self.store.settings.log_directories
        view = self.store.view
        store = survey(view, settings, self.store) if is_log_elsewhere else replace(self.store, settings=settings)
        return replace(self, rules=rules, conf=conf, store=store)

    @property
    def possible_versions(self) -> tuple[str, ...]:
        """Versions of which one may start on the store; more than one only where their starts may differ."""
        is_ranged = self.fitting and (self.store.commitlog or not self.is_version_known)
        return self.fitting if is_ranged else (self.rules.version,)

    @property
    def in_use(self) -> bool:
        """True if a broker runs on the store, or on the one to which its log belongs, as far as can be seen."""
        view = self.store.view
        if not isinstance(view, DirectoryView):
            return False
        directories = [view.root / named for named in self.store.settings.commitlog_directories]
        return lock_report(view.root, directories, None if self.foreign is None else self.foreign.owner).is_in_use

    @property
    def unread_sizes(self) -> UnreadSizes | None:
        """The settings that give the files their size, and that this version does not read."""
        return unread_sizes(self.store, self.conf, self.rules)

    def demand_read_sizes(self) -> None:
        """Refuse, as RefusedError, to fit files to a size that the broker has because it does not read its name."""
        if (unread := self.unread_sizes) is not None:
            raise RefusedError(f"{self.store.view.label}: {unread}")
