"""Holds the admin pages, one model in each file."""
