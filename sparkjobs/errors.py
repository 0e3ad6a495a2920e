"""What the Spark jobs raise; each message is one line for whoever runs the job."""

from __future__ import annotations


class SparkJobsError(Exception):
    """Something the caller can mend."""


class BadConfig(SparkJobsError):
    """The option file is missing or says too little."""


class BadOption(SparkJobsError):
    """An option of the source or of a job cannot be used."""


class Purged(SparkJobsError):
    """Messages that were asked for have been purged."""


class Busy(SparkJobsError):
    """Another run of the same job is at work."""


class ArchiveDiffers(SparkJobsError):
    """What is in the archive is not what it should be."""
