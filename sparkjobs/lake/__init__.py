"""Keeps the lake: the log as Parquet, minutes old, and what of it readers may see."""
