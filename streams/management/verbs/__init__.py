"""Verbs of commands that take a plan, show it, and carry it out."""
