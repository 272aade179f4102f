"""Keys and values of a broker's RocksDB databases, declared like every other format.

No database is opened here.
"""
