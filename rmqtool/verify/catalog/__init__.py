"""The catalog of findings: every id, how severe it is, what a broker does, what repairs it."""
