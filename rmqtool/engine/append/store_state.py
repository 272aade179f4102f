"""What a store answers for its own state: whether it takes messages, and whether disk and replicas had them in time.

Broker: `DefaultMessageStore#checkStoreStatus`, `HookUtils#checkBeforePutMessage`, `CommitLog#handleDiskFlushAndHA`,
`CommitLog#submitReplicaRequest` (4.x).
"""

from __future__ import annotations

from rmqtool.engine.append.message import Message, MessageBatch
from rmqtool.engine.append.status import PutResult, PutStatus
from rmqtool.engine.append.writer_config import Replication, Slave
from rmqtool.engine.rules.broker_rules import BrokerRules
from rmqtool.formats import properties as names

SYNCHRONOUS = "SYNC_MASTER"


def state_refusal(
    replication: Replication, rules: BrokerRules, *, is_open: bool, is_writable: bool
) -> PutResult | None:
    """Why the store takes no message at all; None if it does.

    Args:
        is_open: it was not shut down.
        is_writable: neither a full disk nor a failed write made it read-only (`RunningFlags#isWriteable`).
    """
    reason = None
    if not is_open:
        reason = "the store was shut down"
    elif replication.role == "SLAVE" and not (rules.counts_replicas and replication.duplicates):
        reason = "the broker is a slave (brokerRole)"
    elif not is_writable:
        reason = "the disk is too full to be written to (diskSpaceWarningLevelRatio)"
    return None if reason is None else PutResult(PutStatus.SERVICE_NOT_AVAILABLE, reason=reason)


def replica_refusal(message: Message | MessageBatch, replication: Replication, rules: BrokerRules) -> PutResult | None:
    """Why a master does not write a message that fewer replicas would have than it has to; None if it writes it."""
    if not (rules.counts_replicas and replication.acts_for_master and _waits_for_replicas(message, replication, rules)):
        return None
    alive = replication.replica_count
    needed = replication.in_sync_replicas
    if replication.adapts:
        needed = max(min(needed, alive), replication.in_sync_replicas_min)
    if needed <= alive:
        return None
    reason = f"{needed} replicas are needed (inSyncReplicas), {alive} alive"
    return PutResult(PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH, reason=reason)


def replica_status(message: Message | MessageBatch, replication: Replication, rules: BrokerRules) -> PutStatus:
    """What the replicas make of a message that was written."""
    if not _waits_for_replicas(message, replication, rules):
        return PutStatus.PUT_OK
    if rules.counts_replicas:
        needed = replication.in_sync_replicas
        if replication.acts_for_master and replication.adapts:
            needed = max(min(needed, replication.replica_count), replication.in_sync_replicas_min)
        has_enough = needed <= 1 or (needed == 2 and replication.slave is Slave.ACKNOWLEDGES)
        return PutStatus.PUT_OK if has_enough else PutStatus.FLUSH_SLAVE_TIMEOUT
    if replication.slave is Slave.NONE:
        return PutStatus.SLAVE_NOT_AVAILABLE
    return PutStatus.PUT_OK if replication.slave is Slave.ACKNOWLEDGES else PutStatus.FLUSH_SLAVE_TIMEOUT


def waits_for_store(message: Message | MessageBatch, rules: BrokerRules) -> bool:
    """Whether the sender waits until disk and replicas have the message (`Message#isWaitStoreMsgOK`)."""
    shared = message.shared if isinstance(message, MessageBatch) else message
    text = shared.properties.get(names.WAIT)
    if text is None and shared.properties_text is not None:
        text = rules.property_decoder.decode(shared.properties_text).get(names.WAIT)
    return text is None or text.lower() == "true"


def _waits_for_replicas(message: Message | MessageBatch, replication: Replication, rules: BrokerRules) -> bool:
    if replication.role != SYNCHRONOUS or (rules.counts_replicas and replication.duplicates):
        return False
    return waits_for_store(message, rules)
