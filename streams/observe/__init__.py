"""Reads without changing anything: the trace of a message, the doctor, the server's facts."""
