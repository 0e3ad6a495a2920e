"""The Django app of the streams: its label, its checks, and the caches that a flush empties."""

from django.apps import AppConfig
from django.db.models.signals import post_migrate
from django.utils.translation import gettext_lazy as _


class StreamsConfig(AppConfig):
    name = "streams"
    # A bare label "streams" may be taken in the host project, and a label can never be changed.
    label = "ems"
    verbose_name = _("Streams")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from streams import (
            checks,  # noqa: F401 - registers the system checks
            runtime_settings,
        )
        from streams.log import topics

        # A flush (TransactionTestCase) deletes the rows that these caches remember.
        post_migrate.connect(runtime_settings.forget, sender=self)
        post_migrate.connect(topics.forget, sender=self)
