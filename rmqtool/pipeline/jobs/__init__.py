"""What the commands on Spark do with tables: export them to files and lakehouses, and count messages.

What is here reads stores as tables only.
"""
