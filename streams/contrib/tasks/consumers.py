"""Registers the consumers of the queues: commands, checks and streams.testing import this file."""

from streams.contrib.tasks.queues import register

register()
