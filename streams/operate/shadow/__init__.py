"""Runs a handler over a part of the log, undoes what it writes, and compares two such runs."""
