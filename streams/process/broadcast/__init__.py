"""Runs broadcast groups: every client reads all, from its own position on its own disk."""
