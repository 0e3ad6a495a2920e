from django.db import models, transaction

from streams import SendResult, send


class Stream(models.Model):
    """A film that a customer is watching: this host means something else by the word."""

    film = models.CharField(max_length=40)

    def __str__(self):
        return self.film

    @classmethod
    def start(cls, film: str) -> SendResult:
        """Save it, and tell the others in the same transaction."""
        with transaction.atomic():
            stream = cls.objects.create(film=film)
            return send("streams", {"id": stream.pk, "film": film}, key=film)
