"""The jobs, one a file: a docstring, ``add_arguments(parser)`` and ``run(config, options)``."""
