"""Holds the template tags of the monitoring."""
