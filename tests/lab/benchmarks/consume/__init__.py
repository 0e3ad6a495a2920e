"""Real ``ems_consume`` processes with a handler that does nothing, on a log of 1 KB messages."""
