"""Holds the raw statements, in one module for each step; dialect.py runs them."""
