"""RocketMQ's remoting protocol: frames, a blocking connection, and the few requests that rmqtool sends to a cluster.

What comes over the wire is untrusted: lengths are bounded before anything is allocated, and every wait has a time
limit. This room knows nothing of stores, and never decides what is sent.
"""
