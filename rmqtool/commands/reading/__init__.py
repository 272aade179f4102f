"""Commands that read a store and change nothing."""
