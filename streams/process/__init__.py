"""Runs a consumer process: its supervisor, workers and keepers."""
