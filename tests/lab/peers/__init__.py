"""Compares EMS with what a Django team would pick instead, on the same machine: ``make peers``."""
