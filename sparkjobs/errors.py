"""Defines what the Spark jobs raise; each message is one line for the person who runs the job."""

from __future__ import annotations


class SparkJobsError(Exception):
    """The base class of errors that the caller can correct."""


class BadConfig(SparkJobsError):
    """The option file is missing or says too little."""


class BadOption(SparkJobsError):
    """An option of the source or of a job cannot be used."""


class MessagesPurged(SparkJobsError):
    """Messages that were asked for have been purged."""


class Missing(SparkJobsError):
    """Messages that the log of a partition must have are not there."""


class UnreadableBody(SparkJobsError):
    """What is stored of a body is not what EMS has written."""


class ReplicaBehind(SparkJobsError):
    """The server for reading does not have the messages yet that are to be read."""


class NotRegistered(SparkJobsError):
    """A stream that protects what it has not read cannot say where it is."""


class Busy(SparkJobsError):
    """Another run of the same job is at work."""


class ArchiveDiffers(SparkJobsError):
    """The archive does not hold what it should."""


class BadRow(SparkJobsError):
    """A row of a DataFrame cannot be sent as a message; nothing of its batch is sent."""


class WriteRefused(SparkJobsError):
    """A write to a topic cannot be completed; nothing of it is sent."""


class OutcomeUnknown(SparkJobsError):
    """A write to a topic was sent whole or not at all, and the database cannot be asked which."""


class NotArchived(SparkJobsError):
    """Some topics could not be archived; all others are."""
