"""Computes what the pages show: the live tables and the samples together, in bounded statements."""
