"""Without migrations: the test runner creates the tables as they stand here."""

from django.db import models


class Order(models.Model):
    """Holds a business row that is written in the same transaction as a send."""

    number = models.CharField(max_length=40, unique=True)
    note = models.TextField(blank=True)

    def __str__(self) -> str:
        return self.number


class Handled(models.Model):
    """Records what a handler saw. It is not unique: a message handled twice has two rows."""

    group = models.CharField(max_length=100)
    topic = models.CharField(max_length=100)
    partition = models.IntegerField()
    offset = models.BigIntegerField()
    value = models.TextField()

    def __str__(self) -> str:
        return f"{self.group} {self.topic}/{self.partition}@{self.offset}"
