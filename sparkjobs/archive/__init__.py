"""Keeps the archive: which files hold which offsets, and what was replayed from them."""
