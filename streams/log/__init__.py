"""Holds the log: topics and partitions, the sequencer that fills them, lag, offsets and skips."""
