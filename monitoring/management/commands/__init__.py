"""The management commands of the monitoring."""
