"""The timer of 5.x brokers: its wheel, its log, its checkpoint, and what they make of the messages that wait in it.

Reads what lies there; what is wrong with it is for `verify` to say.
"""
