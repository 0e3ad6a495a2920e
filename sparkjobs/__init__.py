"""Spark jobs that read EMS's tables and write roll-ups; imports neither streams nor monitoring."""
