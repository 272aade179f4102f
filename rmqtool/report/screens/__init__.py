"""Screens of the commands for a person: one file a command, found by the command's name.

A screen lays out a result; it never decides anything.
"""
