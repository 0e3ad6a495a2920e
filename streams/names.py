"""Validates the names of topics, groups, tags and keys: their length and their characters."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.utils.translation import gettext as _

from streams.errors import InvalidName

# In characters: the lengths of the columns that hold these names.
MAX_NAME, MAX_KEY, MAX_TAG, MAX_PRODUCER = 127, 255, 64, 190


def text_of_key(key: Any) -> Any:
    """Return the text of a key that is an int or a UUID; anything else as it is.

    Raises InvalidName for an int that is too long.
    """
    if isinstance(key, int) and not isinstance(key, bool):
        if abs(key) >= 10**MAX_KEY:
            raise InvalidName(_("The key is longer than %d digits.") % MAX_KEY)
        return str(int(key))  # also of an enum, whose own text may be its name
    return str(key) if isinstance(key, UUID) else key


def validated_name(name: Any, what: str, max_length: int) -> str:
    """Return ``name``; raises InvalidName if it could not be stored and found again unchanged.

    ``what`` is the kind of name. It is translated here, because decorators call this before the
    apps are ready.
    """
    if not isinstance(name, str):
        raise InvalidName(_("The %s must be a string, not %r.") % (_(what), name))
    if not name or name != name.strip():
        raise InvalidName(_("The %s %r is empty or has blanks around it.") % (_(what), name))
    if len(name) > max_length:
        raise InvalidName(
            _("The %(what)s is longer than %(max)d characters: %(name)r…")
            % {"what": _(what), "max": max_length, "name": name[:40]}
        )
    if not name.isprintable():
        raise InvalidName(_("The %s %r has characters that cannot be printed.") % (_(what), name))
    return name
