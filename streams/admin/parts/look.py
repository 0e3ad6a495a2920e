"""Asks databases how they are, in the language of the page."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Iterator

from django.db import Error
from django.utils import translation
from django.utils.translation import gettext as _

from streams.admin.alarm import Said
from streams.admin.parts.figures import BAD, GOOD, WARNING
from streams.database.each import Reply, ReplyState, ask_each
from streams.logs import event

logger = logging.getLogger("streams.admin")


def look(
    kind: Hashable, aliases: Iterable[str], ask: Callable[[str], Iterable[Said]], kept: float = 0.0
) -> list[Reply[Said]]:
    """Return what ``ask(alias)`` yields of each database; an error in it is one of the sentences.

    Its answers are shared, see ask_each(): what depends on the rights of a user names these rights
    in its kind.
    """
    language = translation.get_language()

    def asked(alias: str) -> Iterator[Said]:
        with translation.override(language):
            try:
                yield from ask(alias)
            except Error:
                raise
            except Exception as error:
                name = type(error).__name__
                logger.exception(
                    "The database %s could not be asked",
                    alias,
                    extra=event("admin.not_asked", database=alias, error=name),
                )
                text = _("The database %s could not be asked: see the log.")
                yield Said(text % alias, state=_("failed"))

    return ask_each((kind, language), aliases, asked, kept=kept)


def level_of(reply: Reply[Said]) -> str:
    if reply.state is ReplyState.WHOLE:
        return BAD if any(one.text for one in reply.said) else GOOD
    return WARNING if reply.state is ReplyState.ASKED else BAD
