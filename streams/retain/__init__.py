"""Retention: what may be purged, and the purge."""
