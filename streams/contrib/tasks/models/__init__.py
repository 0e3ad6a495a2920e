"""Defines the tables of the tasks, one in each file."""

from streams.contrib.tasks.models.batch import TaskBatch
from streams.contrib.tasks.models.run import TaskRun
from streams.contrib.tasks.models.schedule import TaskSchedule
from streams.contrib.tasks.models.slot import TaskSlot

__all__ = ["TaskBatch", "TaskRun", "TaskSchedule", "TaskSlot"]
