"""Defines the tables of the tasks, one in each file."""

from streams.contrib.tasks.models.run import TaskRun

__all__ = ["TaskRun"]
