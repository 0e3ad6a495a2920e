"""Holds the management commands of the monitoring."""
