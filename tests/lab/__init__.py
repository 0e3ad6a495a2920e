"""Programs that measure, break and play EMS: what ``make bench``, ``mutants`` … run."""
