"""How a broker behaves: its versions as data, how it appends, dispatches, and answers a pull or a query.

`rules` has the versions; `segments` and `queues` the files as a broker has them after load; `reading` what it answers;
`dispatch` what records put into queues and index; `append` how it writes; `timers` what
waits for its time. Nowhere but in `rules` is a version compared.
This room never decides whether a store is damaged and never prints.
"""
