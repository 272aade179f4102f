"""The bits of a record's sysFlag (broker: `MessageSysFlag`)."""

from typing import Final

COMPRESSED: Final = 0x001
MULTI_TAGS: Final = 0x002
TRANSACTION_MASK: Final = 0x00C
TRANSACTION_PREPARED: Final = 0x004
TRANSACTION_COMMIT: Final = 0x008
TRANSACTION_ROLLBACK: Final = 0x00C
BORN_HOST_V6: Final = 0x010
STORE_HOST_V6: Final = 0x020
HOSTS_V6: Final = BORN_HOST_V6 | STORE_HOST_V6
NEED_UNWRAP: Final = 0x040
INNER_BATCH: Final = 0x080
COMPRESSION_MASK: Final = 0x700

TRANSACTION_NAMES: Final = {
    0: "none",
    TRANSACTION_PREPARED: "prepared",
    TRANSACTION_COMMIT: "commit",
    TRANSACTION_ROLLBACK: "rollback",
}
COMPRESSION_NAMES: Final = {0x000: "zlib", 0x100: "lz4", 0x200: "zstd", 0x300: "zlib"}
"""Values of the compression bits; 0x000 is what brokers before 4.9.4 write, 0x400 and above are invalid."""

BIT_DOCS: Final = (
    (COMPRESSED, "COMPRESSED_FLAG", "the body is compressed, by the producer"),
    (MULTI_TAGS, "MULTI_TAGS_FLAG", "the topic's filter type is multi-tag"),
    (TRANSACTION_PREPARED, "TRANSACTION_PREPARED_TYPE", "with 0x8: rollback"),
    (TRANSACTION_COMMIT, "TRANSACTION_COMMIT_TYPE", "with 0x4: rollback"),
    (BORN_HOST_V6, "BORNHOST_V6_FLAG", "the born host is an IPv6 address"),
    (STORE_HOST_V6, "STOREHOSTADDRESS_V6_FLAG", "the store host is an IPv6 address"),
    (NEED_UNWRAP, "NEED_UNWRAP_FLAG", "inner batch: the client must unwrap it"),
    (INNER_BATCH, "INNER_BATCH_FLAG", "the body is a batch kept as one record"),
    (COMPRESSION_MASK, "COMPRESSION_TYPE", "0 and 3 zlib, 1 LZ4 frame, 2 zstd"),
)


def transaction(sys_flag: int) -> str:
    """Name of the transaction type: none, prepared, commit or rollback."""
    return TRANSACTION_NAMES[sys_flag & TRANSACTION_MASK]


def compression(sys_flag: int) -> str | None:
    """Name of the compression, None if the body is not compressed, "unknown" for an invalid type."""
    if not sys_flag & COMPRESSED:
        return None
    return COMPRESSION_NAMES.get(sys_flag & COMPRESSION_MASK, "unknown")


def takes_queue_entry(sys_flag: int) -> bool:
    """True if the record is dispatched to a consume queue: PREPARED and ROLLBACK are not."""
    return sys_flag & TRANSACTION_MASK in (0, TRANSACTION_COMMIT)
