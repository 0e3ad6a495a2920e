"""The search of the list of messages: its fields, and the list of what is found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ALL_VAR
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from streams.admin.parts.filters import number
from streams.admin.parts.listing import UPTO, StreamsChangeList
from streams.conf import database
from streams.errors import InvalidTarget
from streams.log.search import (
    STEPS,
    Criteria,
    SearchResult,
    not_indexed,
    parse_position,
    position_text,
    search,
)
from streams.models import Partition
from streams.rules.names import MAX_KEY, MAX_TAG

FIELDS = ("key", "tag", "since", "until")


class _Instant(forms.DateTimeInput):
    """A field for a time in the project's time zone."""

    input_type = "datetime-local"

    def __init__(self) -> None:
        super().__init__(format="%Y-%m-%dT%H:%M:%S", attrs={"step": 1})


class FinderForm(forms.Form):
    """What is searched; every field may be empty."""

    key = forms.CharField(label=_("Key"), max_length=MAX_KEY, required=False, strip=False)
    tag = forms.CharField(label=_("Tag"), max_length=MAX_TAG, required=False)
    since = forms.DateTimeField(label=_("In the log since"), required=False, widget=_Instant)
    until = forms.DateTimeField(label=_("and before"), required=False, widget=_Instant)

    @classmethod
    def asked(cls, request: HttpRequest) -> FinderForm | None:
        """Return the form of this URL; None if nothing is searched by it."""
        return cls(request.GET) if any(request.GET.get(name) for name in FIELDS) else None

    def criteria(self) -> Criteria:
        values = self.cleaned_data
        return Criteria(
            values["since"], values["until"], values["tag"] or None, values["key"] or None
        )


class FinderChangeList(StreamsChangeList):
    """The page of results of a search; without a search, the list as it is."""

    found: SearchResult | None = None
    finder: FinderForm
    steps = STEPS
    # The topics whose index of keys would make this search quick.
    lacking: Sequence[str] = ()

    def get_filters_params(self, params: Any = None) -> dict[str, Any]:
        left = super().get_filters_params(params)
        return {name: value for name, value in left.items() if name not in FIELDS}

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        rows = super().get_queryset(request, exclude_parameters)
        asked = FinderForm.asked(request)
        self.finder = asked or FinderForm()
        if asked is None:
            return rows
        if not asked.is_valid():
            return rows.none()
        upto = request.GET.get(UPTO)
        try:
            start = parse_position(upto) if upto else None
        except InvalidTarget as error:
            raise IncorrectLookupParameters(upto) from error
        partitions = Partition.objects.using(database()).select_related("topic")
        chosen = number(request.GET.get("partition"))
        if chosen is not None:
            partitions = partitions.filter(pk=chosen)
        limit = self.list_per_page
        criteria = asked.criteria()
        self.found = search(partitions, criteria, limit, database(), start)
        if criteria.key is not None:
            self.lacking = not_indexed(partitions)
        # Few rows, by their ids.
        return rows.filter(pk__in=[message.pk for message in self.found.messages])

    @property
    def hidden(self) -> list[tuple[str, str]]:
        """Return the other parameters of the URL, which the search keeps."""
        gone = {*FIELDS, UPTO, ALL_VAR}
        return [(name, value) for name, value in self.params.items() if name not in gone]

    @property
    def older_url(self) -> str:
        if self.found is None:
            return super().older_url
        then = self.found.then
        return self.get_query_string({UPTO: position_text(then)}) if then else ""
