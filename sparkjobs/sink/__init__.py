"""Writes DataFrames and streams into topics: the Spark sink "ems"."""
