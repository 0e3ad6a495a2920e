"""The raw statements, one drawer a step; dialect.py says how they are run."""
