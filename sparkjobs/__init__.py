"""Reads EMS's tables by Spark and writes roll-ups; imports neither streams nor monitoring."""
