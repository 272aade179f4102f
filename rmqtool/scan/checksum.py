"""CRC-32 at the speed the machine has: ISA-L where there is a wheel, else zlib."""

try:
    from isal.isal_zlib import crc32
except ImportError:  # no wheel for this platform
    from zlib import crc32

__all__ = ["crc32"]
