"""What producers committed and what consumers saw, so that the two can be compared."""

from django.db import models

from streams.models import UtcDateTimeField


class Sent(models.Model):
    """The business row of a message, written in the transaction of its send."""

    topic = models.CharField(max_length=20)
    producer = models.CharField(max_length=40)
    n = models.PositiveIntegerField()

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["topic", "producer", "n"], name="scenario_sent"),
        )

    def __str__(self) -> str:
        return f"{self.topic} {self.producer}:{self.n}"


class Record(models.Model):
    """One consumption: unique, and counting how often it happened."""

    topic = models.CharField(max_length=20)
    group = models.CharField(max_length=20)
    partition = models.PositiveIntegerField()
    offset = models.BigIntegerField()
    producer = models.CharField(max_length=40)
    n = models.PositiveIntegerField()
    process = models.PositiveIntegerField()
    times = models.PositiveIntegerField()
    at = UtcDateTimeField()

    class Meta:
        constraints = (
            models.UniqueConstraint(
                fields=["topic", "group", "partition", "offset"], name="scenario_record"
            ),
        )
        indexes = (models.Index(fields=["at"], name="scenario_at"),)

    def __str__(self) -> str:
        return f"{self.group} {self.topic}@{self.offset}"
