"""How broker versions differ, as data: the only place that compares versions."""
