"""All declared formats, in the order of the documentation.

`rmqtool formats` and the documentation page are made from this list.
"""

from typing import Final

from rmqtool.formats import batch, checkpoint, commitlog, consumequeue, dledger, index, message_id, replication, timer
from rmqtool.formats.layout import Format
from rmqtool.formats.rocksdb import config as rocksdb_config
from rmqtool.formats.rocksdb import pop as rocksdb_pop
from rmqtool.formats.rocksdb import queue as rocksdb_queue
from rmqtool.formats.rocksdb import store as rocksdb_store

FORMATS: Final[tuple[Format, ...]] = (
    commitlog.MESSAGE_V1,
    commitlog.MESSAGE_V2,
    commitlog.BLANK,
    batch.BATCH_PART,
    consumequeue.UNIT,
    consumequeue.EXTENSION_UNIT,
    consumequeue.BATCH_UNIT,
    rocksdb_queue.UNIT_KEY,
    rocksdb_queue.UNIT,
    rocksdb_queue.OFFSET_KEY,
    rocksdb_queue.OFFSET,
    rocksdb_queue.DISPATCHED,
    rocksdb_store.INDEX_KEY,
    rocksdb_store.INDEX_VALUE,
    rocksdb_store.TIMER_KEY,
    rocksdb_store.TIMER_VALUE,
    rocksdb_store.TRANSACTION_KEY,
    rocksdb_store.TRANSACTION_VALUE,
    rocksdb_pop.POP_KEY,
    rocksdb_config.NAME_KEY,
    rocksdb_config.OFFSET_KEY,
    rocksdb_config.OFFSET,
    rocksdb_config.VERSION,
    index.HEADER,
    index.SLOT,
    index.ENTRY,
    checkpoint.CHECKPOINT,
    timer.SLOT,
    timer.UNIT,
    timer.BLANK,
    timer.CHECK,
    dledger.ENTRY,
    dledger.INDEX_UNIT,
    replication.REPORT,
    replication.TRANSFER,
    message_id.OFFSET_MESSAGE_ID,
    message_id.UNIQUE_KEY,
)

BY_NAME: Final = {declared.name: declared for declared in FORMATS}
