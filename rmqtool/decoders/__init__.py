"""Bodies as their producers meant them: JSON, text, Avro, protobuf, plugins, and what brokers write for themselves.

Never raises for a body: one that cannot be decoded gives a sentence. What decoders give out is bounded, and plain JSON.
"""
