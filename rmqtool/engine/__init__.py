"""How a broker behaves: its versions as data, how it appends, dispatches, and answers a pull or a query.

`rules` has the versions, and nowhere else is one compared; `segments` and `queues` have the files as a broker has them
after load; `reading` has what it answers, `dispatch` what records put into queues and index, `append` how it writes.
This room never decides whether a store is damaged and never prints.
"""
