"""How a broker behaves: its versions as data, how it appends, dispatches, and answers a pull or a query.

Differences between broker versions are fields of the descriptions in `versions`; nowhere else is a version compared.
This room never decides whether a store is damaged and never prints.
"""
