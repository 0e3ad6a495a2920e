"""Measures the pages of the monitoring, and what runs beside them, on a large installation."""
