"""Provides the Spark data source "ems": tables of a stream as DataFrames, read in parallel."""
