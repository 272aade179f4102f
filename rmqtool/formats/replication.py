"""Messages of master and slave for the replication of the commit log: the slave's report, the master's header.

Broker: `DefaultHAClient`, `HAConnection` (4.x), `DefaultHAConnection` (5.x). Nothing precedes the first report.
"""

from __future__ import annotations

from struct import Struct as Packer
from typing import Final

from construct import Int32sb, Int64sb, Struct

from rmqtool.formats.layout import Format

REPORT: Final = Format(
    "replication-report",
    "Replication: report of a slave",
    "DefaultHAClient#reportSlaveMaxOffset",
    Struct(
        "physical_offset" / Int64sb * "the first one asks for the log from here on; each acknowledges all before it",
    ),
    "A request for 0 is answered from the start of the last commit log file. The master closes after 20 s of silence.",
)
TRANSFER: Final = Format(
    "replication-transfer",
    "Replication: header of what a master sends",
    "DefaultHAConnection.WriteSocketService#transferData",
    Struct(
        "physical_offset" / Int64sb * "of the first byte that follows, or of the next one in a heartbeat",
        "body_length" / Int32sb * "bytes of the commit log that follow; 0: heartbeat, nothing was sent for 5 s",
    ),
    "The bytes after it lie within one commit log file, and may end anywhere in a record.",
)
REPORT_FORM: Final = Packer(REPORT.struct_code)
TRANSFER_FORM: Final = Packer(TRANSFER.struct_code)
