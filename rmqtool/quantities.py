"""Kinds of integer that must not be mixed up; three of them are called "offset" in the broker."""

from typing import NewType

PhysicalOffset = NewType("PhysicalOffset", int)
"""Bytes from the beginning of the logical commitlog (broker: PHYSICALOFFSET, phyOffset, commitLogOffset)."""

QueueOffset = NewType("QueueOffset", int)
"""Number of a message in one (topic, queue id) (broker: QUEUEOFFSET, consume offset)."""

FilePosition = NewType("FilePosition", int)
"""Bytes from the beginning of one file."""

TimestampMs = NewType("TimestampMs", int)
"""Milliseconds since the Unix epoch."""
