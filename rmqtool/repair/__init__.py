"""Plan, apply and undo the repair of a damaged store.

`recover`, `rebuild` and `salvage` are three planners. `build` makes consume queues and index from the log for them, and
`machine` applies any plan and rolls it back. Nothing is written that is not a step of a plan, and no plan comes from a
scan that did not cover what it changes.

A planner builds into a staging directory, which is empty at first and must stay until the plan is applied. It raises
UnreadableError where the disk does not give a file, and WriteError where the staging directory does not take one;
docstrings name other errors only.
"""
