"""Records what producers committed and what consumers saw, so that both can be compared."""

from django.db import models

from streams.models import UtcDateTimeField


class Sent(models.Model):
    """Holds the business row of a message, written in the transaction of its send.

    ``is_void``: a check-back has taken its place, so that the row itself can never come.
    """

    topic = models.CharField(max_length=20)
    producer = models.CharField(max_length=40)
    n = models.PositiveIntegerField()
    is_void = models.BooleanField(default=False)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["topic", "producer", "n"], name="scenario_sent"),
        )

    def __str__(self) -> str:
        return f"{self.topic} {self.producer}:{self.n}"


class Record(models.Model):
    """Counts how often a group has consumed a message; there is one row for both."""

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
