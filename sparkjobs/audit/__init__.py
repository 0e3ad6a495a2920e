"""Reconciles what the log, the groups and their outcomes say: compares each with the others."""
