"""Holds the jobs: files with a docstring, ``add_arguments(parser)``, ``run(config, options)``."""
