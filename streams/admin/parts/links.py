"""Names the database in every link of a page, also in those of Django's own templates."""

from __future__ import annotations

import re
from html import escape, unescape
from typing import Any
from urllib.parse import urlencode, urlsplit, urlunsplit

from django.http import QueryDict

# The parameter of the URL that names the database.
PARAMETER = "database"

# What leads somewhere. In a text Django escapes the quotation marks, so no body looks like these.
_ATTRIBUTE = re.compile(r'(?<![\w-])((?:form)?action|href|data-href-template)="([^"]+)"')
_FORM = re.compile(r"<form\b[^>]*>")
_POSTS = re.compile(r'\smethod="post"', re.IGNORECASE)
_TARGET = re.compile(r'\saction="([^"]*)"')
_JSON = re.compile(r'"url": "([^"\\]+)"')


def naming(url: str, alias: str) -> str:
    """Return the URL with the alias as its parameter, unless it names one."""
    parts = urlsplit(url)
    if PARAMETER in QueryDict(parts.query):
        return url
    said = urlencode({PARAMETER: alias})
    return urlunsplit(parts._replace(query=f"{parts.query}&{said}" if parts.query else said))


def without(query: Any) -> Any:
    """Return the parameters without that of the database."""
    left = query.copy()
    left.pop(PARAMETER, None)
    left._mutable = False
    return left


class Links:
    """The links of a page that get ``alias``: to this page, and to the pages below ``paths``."""

    def __init__(self, alias: str, paths: tuple[str, ...]) -> None:
        self.alias = alias
        self.paths = paths

    def url(self, url: str) -> str:
        return naming(url, self.alias) if url.startswith((*self.paths, "?")) else url

    def html(self, text: str) -> str:
        """Return the page with the alias in its links and forms.

        A browser replaces the query of a form's URL by the fields, unless the form posts.
        """
        return _FORM.sub(self._form, _ATTRIBUTE.sub(self._attribute, text))

    def json(self, text: str) -> str:
        """Return what ``?format=json`` says, with the alias in the values of the keys ``url``."""
        return _JSON.sub(lambda found: f'"url": "{self.url(found[1])}"', text)

    def _attribute(self, found: re.Match[str]) -> str:
        url = unescape(found[2])
        named = self.url(url)
        return found[0] if named == url else f'{found[1]}="{escape(named)}"'

    def _form(self, found: re.Match[str]) -> str:
        form = found[0]
        target = _TARGET.search(form)
        leads_here = target is None or not target[1] or target[1].startswith((*self.paths, "?"))
        if _POSTS.search(form) or not leads_here:
            return form
        return f'{form}<input type="hidden" name="{PARAMETER}" value="{escape(self.alias)}">'
