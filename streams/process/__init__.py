"""The consumer process: its supervisor, workers and keepers."""
