"""Without migrations: the test runner creates the tables as they stand here."""

from django.db import models


class Order(models.Model):
    """A business row that is written in the same transaction as a send."""

    number = models.CharField(max_length=40, unique=True)
    note = models.TextField(blank=True)

    def __str__(self) -> str:
        return self.number


class Handled(models.Model):
    """What a handler saw. Not unique on purpose: a message handled twice must show as two rows."""

    group = models.CharField(max_length=100)
    topic = models.CharField(max_length=100)
    partition = models.IntegerField()
    offset = models.BigIntegerField()
    value = models.TextField()

    def __str__(self) -> str:
        return f"{self.group} {self.topic}/{self.partition}@{self.offset}"
