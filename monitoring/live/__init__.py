"""Holds the live figures: bounded statements over the tables of EMS."""
