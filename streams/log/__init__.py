"""The log: topics and their partitions, the sequencer that fills them, and what stands where."""
