"""The reconciliation: what the log, the groups and their outcomes say, held against each other."""
