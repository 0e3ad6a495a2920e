"""The management commands of EMS."""
