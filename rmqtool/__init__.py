"""Inspect, verify and repair the store directory of an Apache RocketMQ broker, without a broker."""

__version__ = "0.2.0"
