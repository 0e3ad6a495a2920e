from django.db import models


class Play(models.Model):
    """One film counted by one group."""

    group = models.CharField(max_length=40)
    film = models.CharField(max_length=40)
    attempt = models.IntegerField()

    def __str__(self):
        return f"{self.group}: {self.film}"
