"""Plan, apply and undo the repair of a damaged store.

`recover`, `rebuild` and `salvage` are three planners. `build` makes consume queues and index from the log for them, and
`machine` applies any plan and rolls it back. Nothing is written that is not a step of a plan, and no plan comes from a
scan that did not cover what it changes.
"""
