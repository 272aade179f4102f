"""Assessment of a store: verdict, headline, next step and exit code, from findings, forecasts and coverage.

It reads no record of the log and never prints; every command that judges a store asks here, so that all say the same.
"""
