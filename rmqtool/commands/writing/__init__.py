"""Commands that write a new store, or more messages into one."""
