"""A copy of a running broker's commit log, received through its replication port.

`connection` speaks the protocol, `record_check` judges what arrives, `master_log` finds where a master's log starts and
gives it out in whole records, `log_copy` keeps it, and `mirror` runs them. What a master sends is untrusted input: only
whole records that pass their checks and continue the copy are written, and nothing that the copy has is overwritten. No
acknowledgement is sent unless somebody asks for it.
"""
