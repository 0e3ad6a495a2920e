"""Defines the tables of the tasks, one in each file."""

from streams.contrib.tasks.models.batch import TaskBatch
from streams.contrib.tasks.models.run import TaskRun
from streams.contrib.tasks.models.schedule import TaskSchedule

__all__ = ["TaskBatch", "TaskRun", "TaskSchedule"]
