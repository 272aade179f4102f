"""Page of a report on one store: self-contained, bounded in size, every text from the store escaped.

It decides nothing about a store and reads none: it is given what the engines found, and returns the text of the page.
"""
