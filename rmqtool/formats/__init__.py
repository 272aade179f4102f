"""Formats of a store, each declared once as a construct schema with a text for each field.

Layouts, numpy dtypes, Arrow schemas and the documentation page are derived from these declarations. No file is opened
here, and nothing is known of directories or broker behavior.
"""
