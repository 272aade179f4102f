"""Jobs of the commands on Spark: export tables to files and lakehouses, and count messages.

What is here reads stores as tables only.
"""
