"""Holds the management commands of EMS."""
