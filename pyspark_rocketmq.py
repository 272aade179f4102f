"""Lets Spark find the data source `rocketmq-store` by itself: it looks for `DefaultSource` in modules `pyspark_*`."""

from rmqtool.pipeline.source import RocketmqStoreSource as DefaultSource

__all__ = ["DefaultSource"]
