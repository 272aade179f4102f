"""The broker settings that decide how a client's request is handled, with the broker's defaults.

Broker: `BrokerConfig`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from rmqtool.engine.append.message import DEFAULT_STORE_HOST
from rmqtool.store.config.broker_conf import BrokerConf


@dataclass(frozen=True, kw_only=True)
class ClientSettings:
    """Settings of a broker for requests of its clients.

    Attributes:
        permission: 4 reads, 2 writes.
        accepts_from_ms: no message is taken before.
        default_queue_count: of the topic that new topics are made after.
        store_host: the address that messages are stored with, 8 or 20 bytes (brokerIP1, listenPort).
        operation_bytes_max: of the body of an operation record.
    """

    permission: int = 6
    accepts_from_ms: int = 0
    creates_topics: bool = True
    default_queue_count: int = 8
    creates_groups: bool = True
    has_cluster_topic: bool = True
    has_broker_topic: bool = True
    rejects_transactions: bool = False
    cluster: str = "DefaultCluster"
    broker: str | None = None
    region: str = "DefaultRegion"
    traces: bool = True
    store_host: bytes = DEFAULT_STORE_HOST
    transaction_timeout_ms: int = 6000
    operation_bytes_max: int = 4096


_NUMBERS: Final = {
    "permission": "brokerPermission",
    "accepts_from_ms": "startAcceptSendRequestTimeStamp",
    "default_queue_count": "defaultTopicQueueNums",
    "transaction_timeout_ms": "transactionTimeOut",
    "operation_bytes_max": "transactionOpMsgMaxSize",
}
_FLAGS: Final = {
    "creates_topics": "autoCreateTopicEnable",
    "creates_groups": "autoCreateSubscriptionGroup",
    "has_cluster_topic": "clusterTopicEnable",
    "has_broker_topic": "brokerTopicEnable",
    "rejects_transactions": "rejectTransactionMessage",
    "traces": "traceOn",
}
_TEXTS: Final = {"cluster": "brokerClusterName", "broker": "brokerName", "region": "regionId"}


def client_settings(conf: BrokerConf | None, store_host: bytes) -> ClientSettings:
    """Settings of a broker's properties file; the defaults for those that are missing or that Java cannot read."""
    read: dict[str, Any] = {}
    if conf is not None:
        read |= {field: conf.number(name, 64) for field, name in _NUMBERS.items()}
        read |= {field: conf.flag(name) for field, name in _FLAGS.items()}
        read |= {field: conf.text(name) or None for field, name in _TEXTS.items()}
    return ClientSettings(store_host=store_host, **{field: value for field, value in read.items() if value is not None})
