"""Has the fixture ``chaos``, as a project gets it from pytest_plugins in its own conftest.py."""

from streams.chaos import chaos as chaos
