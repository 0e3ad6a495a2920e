"""Holds the pages of the monitoring, one in each file; see registry.py."""
