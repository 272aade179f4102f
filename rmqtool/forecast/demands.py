"""Which stores no start is simulated of; light, for `info` asks too, and must not wait for numpy."""

from __future__ import annotations

from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.errors import UnsupportedError
from rmqtool.store.directory import Store
from rmqtool.store.dledger_files import demand_plain_log
from rmqtool.store.unproven_sizes import demand_log_file_size


def demand_simulated(store: Store, rules: BrokerRules) -> None:
    """Refuse a store of which no start is simulated.

    Raises:
        UnsupportedError: log or queues are of a kind that is not.
        UnknownSizeError: nothing shows the size of a log file.
    """
    demand_plain_log(store)
    demand_log_file_size(store, "--log-file-size BYTES or --broker-conf FILE")
    database = store.queue_database if rules.rocksdb_queues else None
    if database is not None and not database.is_read and store.queue_kind == "rocksdb":
        raise UnsupportedError(f"the consume queues are in RocksDB: {database.reason}")
    roles = store.settings.queue_roles if rules.combines_queue_sides else None
    if roles is None or ({roles.reads, roles.assigns} == {"file"} and not roles.light_in_rocksdb):
        return
    second = store.second_database
    if second is not None and not second.is_read:
        raise UnsupportedError(f"consume queues that the broker uses are in RocksDB: {second.reason}")
