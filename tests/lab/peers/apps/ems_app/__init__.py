"""Consumes for EMS: one message a call, and a hundred."""
