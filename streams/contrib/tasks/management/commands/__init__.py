"""Holds the commands of the tasks."""
