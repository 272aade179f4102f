"""The broker settings that decide how a client's request is handled, with the broker's defaults.

Broker: `BrokerConfig`.
"""

from __future__ import annotations

from dataclasses import dataclass

from rmqtool.engine.append.message import DEFAULT_STORE_HOST
from rmqtool.store.config.broker_conf import BrokerConf


@dataclass(frozen=True, kw_only=True)
class ClientSettings:
    """The names in brackets are the broker's.

    Attributes:
        permission: 4 reads, 2 writes (brokerPermission).
        accepts_from_ms: no message is taken before (startAcceptSendRequestTimeStamp).
        default_queue_count: of the topic that new topics are made after (defaultTopicQueueNums).
        store_host: the address that messages are stored with, 8 or 20 bytes (brokerIP1, listenPort).
        operation_bytes_max: of the body of an operation record (transactionOpMsgMaxSize).
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


def client_settings(conf: BrokerConf | None, store_host: bytes = DEFAULT_STORE_HOST) -> ClientSettings:
    """Settings of a broker's properties file; the defaults for those that are missing or that Java cannot read."""
    known = conf or BrokerConf("", {})

    def number(name: str, default: int) -> int:
        value = known.number(name, 64)
        return default if value is None else value

    def flag(name: str, *, default: bool) -> bool:
        value = known.flag(name)
        return default if value is None else value

    defaults = ClientSettings()
    return ClientSettings(
        permission=number("brokerPermission", defaults.permission),
        accepts_from_ms=number("startAcceptSendRequestTimeStamp", defaults.accepts_from_ms),
        creates_topics=flag("autoCreateTopicEnable", default=True),
        default_queue_count=number("defaultTopicQueueNums", defaults.default_queue_count),
        creates_groups=flag("autoCreateSubscriptionGroup", default=True),
        has_cluster_topic=flag("clusterTopicEnable", default=True),
        has_broker_topic=flag("brokerTopicEnable", default=True),
        rejects_transactions=flag("rejectTransactionMessage", default=False),
        cluster=known.text("brokerClusterName") or defaults.cluster,
        broker=known.text("brokerName") or None,
        region=known.text("regionId") or defaults.region,
        traces=flag("traceOn", default=True),
        store_host=store_host,
        transaction_timeout_ms=number("transactionTimeOut", defaults.transaction_timeout_ms),
        operation_bytes_max=number("transactionOpMsgMaxSize", defaults.operation_bytes_max),
    )
