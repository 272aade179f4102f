"""Decoders of bodies: JSON, text, Avro, protobuf, plugins, and the brokers' own records.

Never raises for a body: one that cannot be decoded gives a sentence. What decoders give out is bounded, and plain JSON.
"""
