"""Settings and small state files of a broker, read as brokers read them.

Nothing is judged here: `verify` and `forecast` say what is wrong with them.
"""
