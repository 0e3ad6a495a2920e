"""Decides what may be purged, and purges it; deletes old rows beside the messages."""
