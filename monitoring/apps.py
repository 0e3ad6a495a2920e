"""Configures the Django app of the monitoring."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _

if TYPE_CHECKING:
    from datetime import datetime

    from streams.admin.alarm import Said
    from streams.log.condition import Known
    from streams.log.lag import Lag
    from streams.observe.diagnoses import Diagnosis


class MonitoringConfig(AppConfig):
    name = "monitoring"
    # The host project may have an app labelled "monitoring", and a label can never be changed.
    label = "ems_monitoring"
    verbose_name = _("Streams monitoring")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from monitoring.sample import acts

        acts.connect()

    def ems_schedule(self, using: str | None) -> dict[str, dict[str, Any]]:
        """Return the entries that ems_sync_schedules adds."""
        from monitoring.schedule import schedule

        return schedule(using)

    def ems_old_rows(self) -> dict[str, Callable[[str], Iterator[int]]]:
        """Return what the nightly purge deletes of these tables, too."""
        from monitoring.alarms.old_alarms import old_alarms
        from monitoring.old_figures import old_figures
        from monitoring.old_staged import old_staged
        from monitoring.sample.thinning import old_samples

        return {
            "figures": old_figures,
            "samples": old_samples,
            "alarms": old_alarms,
            "staged": old_staged,
        }

    def ems_steps(self) -> dict[str, Callable[[str], object]]:
        """Return what consumers and beat run every few seconds; each step says when it is due."""
        from monitoring.alarms import audit, delivering, evaluation
        from monitoring.sample.take import sample

        return {
            "sample": sample,
            audit.STEP: audit.audit_if_due,
            evaluation.STEP: evaluation.evaluate_if_due,
            delivering.STEP: delivering.deliver_if_due,
        }

    def ems_alarms(self, using: str, may: Callable[[str], bool]) -> Iterable[Said]:
        """Return a sentence for the top of the admin's pages while alarms fire.

        ``may`` tells whether who sees the page has a permission.
        """
        from monitoring.alarms.banner import sentences

        return sentences(using, may) if may("ems_monitoring.view_alarm") else ()

    def ems_trouble(self, using: str, may: Callable[[str], bool]) -> Iterable[Said]:
        """Return what is wrong for the index of the admin: alarms that fire, groups in trouble."""
        from monitoring.figures.trouble import trouble

        return trouble(using, may)

    def ems_pages(self, user: Any) -> Iterable[tuple[Any, str]]:
        """Return the pages that the index of the admin leads to: title and name of the URL."""
        from monitoring.pages.registry import PAGES

        return [
            (page.title, f"ems_monitoring_overview_{page.name}")
            for page in PAGES
            if page.tab == page.name and page.is_for(user)
        ]

    def ems_overview(self, using: str) -> dict[str, Any]:
        """Return how groups stand, rates and alarms for the overview of the HTTP API."""
        from monitoring.figures.api import overview

        return overview(using)

    def ems_known(self, using: str, lags: Sequence[Lag], now: datetime) -> Mapping[int, Known]:
        """Return the rates and alarms of groups, for whatever shows how they stand."""
        from monitoring.figures.known import known_now

        return known_now(using, lags, now)

    def ems_diagnoses(self, using: str) -> Iterable[Diagnosis]:
        """Return what ems_doctor says of the roll-ups and of the alarms."""
        from monitoring import doctor

        return [*doctor.examine(using), *doctor.alarms(using)]
