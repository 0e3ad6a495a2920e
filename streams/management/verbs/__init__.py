"""Holds verbs of commands that show a plan and carry it out."""
