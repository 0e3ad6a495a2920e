"""Keeps one Spark session, and does with it what is due."""
