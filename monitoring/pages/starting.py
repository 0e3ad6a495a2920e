"""Starts Spark jobs from a page, each in a process of its own that outlives the request."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import ClassVar

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext

from monitoring import java, jobs
from monitoring.models import Run
from monitoring.pages.base import FiguresPage
from streams.admin.parts import journal
from streams.conf import database, settings
from streams.errors import Disabled

START = "ems_monitoring.start_run"
HOUR = 3600
# Whether there is Java does not change often, and a look starts a process.
LOOK_SECONDS = 60

_looked: list[tuple[float, str]] = []


class StartingPage(FiguresPage):
    """A page with buttons that start jobs; ``starts`` says which, and after how many seconds each
    ends. It goes on where the last one has ended.
    """

    starts: ClassVar[Mapping[str, tuple[str, int]]]
    http_method_names = ["get", "head", "options", "post"]

    @property
    def may_start(self) -> bool:
        return bool(self.request.user.has_perm(START))

    def post(self, request: HttpRequest, **arguments: object) -> HttpResponse:
        if not self.may_start:
            raise PermissionDenied
        if chosen := self.starts.get(request.POST.get("verb", "")):
            job, seconds = chosen
            if text := lacking() if settings().ENABLED else str(Disabled()):
                self.admin.message_user(request, text, messages.ERROR)
            else:
                jobs.start(job, database(), seconds=seconds)
                begun = gettext("The job %s has been started; its runs appear below.") % job
                about = gettext("%(job)s, for at most %(seconds)d s")
                journal.note_bulk(request, Run, about % {"job": job, "seconds": seconds}, begun)
                self.admin.message_user(request, begun, messages.SUCCESS)
        return HttpResponseRedirect(request.get_full_path())


def lacking() -> str:
    """Return what this host lacks for Spark jobs, as ``java.missing``; looked at once a minute."""
    now = time.monotonic()
    if not _looked or now - _looked[-1][0] > LOOK_SECONDS:
        _looked[:] = [(now, java.missing())]
    return _looked[-1][1]
