"""Holds the template tags of the admin pages."""
