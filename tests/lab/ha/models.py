"""The rows of the business of which messages tell."""

from django.db import models


class Order(models.Model):
    """Is written in the transaction of its message."""

    producer = models.CharField(max_length=20)
    n = models.PositiveIntegerField()

    class Meta:
        constraints = (models.UniqueConstraint(fields=["producer", "n"], name="ha_order"),)

    def __str__(self) -> str:
        return f"{self.producer}:{self.n}"
