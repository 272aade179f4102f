"""Checks of whole files and small files: names, lengths, checkpoint, configuration, where units point."""
