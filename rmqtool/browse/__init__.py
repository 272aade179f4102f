"""The terminal browser: topics, queues, messages, records and findings of a store, on keys alone.

The only room that imports Textual. Never writes, never reads a queue that nobody looks at, and shows nothing that came
out of a store unescaped.
"""
