"""Changes what an operator may set of a topic or a group, and the run-time settings.

The pages of the admin and the commands have the same fields and the same validation: that of the
model, ``valid_retry_policy`` and ``valid_rate``.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ValidationError
from django.db.models import Model
from django.utils.translation import gettext_lazy as _

from streams import runtime_settings
from streams.conf import DEFAULTS
from streams.consume.outcome.backoff import parse_retry_policy
from streams.consume.rate import Rate
from streams.database.retrying import retrying
from streams.errors import InvalidValue
from streams.log import topics
from streams.logs import event
from streams.models import ConsumerGroup, SystemConfig, Topic
from streams.models.group import UNLIMITED

logger = logging.getLogger("streams.operate")

# The fields that may be set, of each model.
CHANGEABLE: dict[type[Model], tuple[str, ...]] = {
    Topic: (
        *("access", "retention_seconds", "retention_count", "retention_consumed"),
        *("archive", "index_keys"),
    ),
    ConsumerGroup: ("max_retries", "retry_policy", "consume_timeout", "batch", "rate"),
}

MEANINGS = {
    "installationId": _("tells databases that share one Redis apart; read when a process starts"),
    "shardsHash": _("stands for EMS['SHARDS']; written by “ems_topics routes --accept”"),
    "autoCreateTopic": _("whether the first send to a topic creates it"),
    "msgMaxSizeInBytes": _("the largest body, in bytes"),
    "consumerBatchSize": _("how many messages make one batch; a claim is one batch or several"),
    "consumerClaimSeconds": _(
        "seconds of handler calls that one claim may cover; 0: each claim is one batch"
    ),
    "consumerThreads": _(
        "how many threads of a process a group may have at once; read when it starts"
    ),
    "processThreads": _("worker threads of a process, for all its groups; read when it starts"),
    "consumerRetryMaxTimes": _("attempts after the first one; then the message is a dead letter"),
    "parkedMessagesMax": _(
        "messages of a group ordered by key that may wait for failed ones; beyond them partitions"
        " wait"
    ),
    "consumeTimeoutSeconds": _("how long one handler call may take, in seconds"),
    "messageRetentionDays": _(
        "days that messages are kept where the topic does not say it, and until every group has"
        " finished them; 0: for ever"
    ),
    "readerProtectDays": _(
        "days that a stream of Spark with protect=true holds back the purge after it was last seen"
    ),
    "deliveryRetentionDays": _("days that deliveries are kept after their end; 0: for ever"),
    "deadRetentionDays": _("days that dead letters are kept; 0: for ever"),
    "figureRetentionDays": _("days that the figures of the Spark jobs are kept; 0: for ever"),
    "figureMinuteRetentionDays": _(
        "days that these figures are kept minute by minute, then as hours and days; 0: as long as"
        " these"
    ),
    "dedupWindowSeconds": _("the dedup window of a send that names none, in seconds"),
    "verifyFirstSeconds": _("seconds until a prepared message is checked first"),
    "verifyStepSeconds": _("seconds: check n + 1 comes n + 1 times as long after check n"),
    "verifyMaxTimes": _("checks of a prepared message; then a person must decide"),
    "verifyTimeoutSeconds": _("how long a check endpoint may take to answer, in seconds"),
    "sendMaxTimes": _("tries to send a committed message whose topic refuses it"),
    "preparedRetentionDays": _("days that prepared messages are kept after the decision"),
}

Changes = dict[str, tuple[Any, Any]]  # {field: (before, after)}


def change(row: Model, values: Mapping[str, Any], using: str, who: str) -> Changes:
    """Set fields of a topic or a group, all or none; return those that have changed.

    ``who`` is written into the log. Other processes use the new values within FRESH_SECONDS. Raises
    InvalidValue before anything is written.
    """
    model = type(row)
    before = {name: getattr(row, name) for name in values}
    for name, value in values.items():
        setattr(row, name, value)
    _validate(row, values)
    changed = {
        name: (old, getattr(row, name)) for name, old in before.items() if getattr(row, name) != old
    }
    if changed:
        rows = model._default_manager.using(using).filter(pk=row.pk)
        after = {name: new for name, (_old, new) in changed.items()}
        retrying(lambda: rows.update(**after), using)
        topics.forget()
    for name, (old, new) in changed.items():
        logger.info(
            "%s: %s was %r and is %r, set by %s",
            *(row, name, old, new, who),
            extra=event("row.changed", row=str(row), field=name, by=who, database=using),
        )
    return changed


def valid_retry_policy(text: str) -> str:
    """Return the policy without outer blanks, empty for none; raises InvalidRetryPolicy."""
    text = text.strip()
    if text:
        parse_retry_policy(text)
    return text


def valid_rate(text: str) -> str:
    """Return the rate as it is written out, empty for none of its own; raises InvalidRate."""
    text = text.strip()
    return str(Rate.of(text)) if text not in ("", UNLIMITED) else text


def in_force(using: str) -> list[dict[str, Any]]:
    """Return every run-time setting with its value in force now."""
    rows = {row.name: row for row in SystemConfig.objects.using(using)}
    overrides = SystemConfig.objects.using(using).overrides()
    return [
        {
            "name": name,
            "value": overrides.get(name, default),
            "default": default,
            "is_overridden": name in overrides,
            "changed_at": rows[name].updated_at if name in rows else None,
            "meaning": MEANINGS.get(name, ""),
        }
        for name, default in DEFAULTS.items()
    ]


def set_setting(name: str, value: Any, using: str, who: str) -> None:
    """Override the run-time setting ``name``, in all processes within FRESH_SECONDS.

    Raises InvalidValue.
    """
    _validate(SystemConfig(name=name, value=value), ("name", "value"))
    settings = SystemConfig.objects.using(using)
    retrying(lambda: settings.update_or_create(name=name, defaults={"value": value}), using)
    runtime_settings.forget()
    logger.info(
        "%s is %r, set by %s",
        *(name, value, who),
        extra=event("setting.changed", setting=name, by=who, database=using),
    )


def unset_setting(name: str, using: str, who: str) -> bool:
    """Let the default of ``name`` hold again; return False if it held before.

    Raises InvalidValue. The row of a setting that this code does not know can be removed, too.
    """
    row = SystemConfig.objects.using(using).filter(name=name)
    deleted, _of_each = retrying(row.delete, using)
    if not deleted and name not in DEFAULTS:
        raise InvalidValue(str(_("There is no setting of this name.")))
    runtime_settings.forget()
    if deleted:
        logger.info(
            "%s has its default again, set by %s",
            *(name, who),
            extra=event("setting.unset", setting=name, by=who, database=using),
        )
    return bool(deleted)


def _validate(row: Model, names: Any) -> None:
    others = {field.name for field in row._meta.fields} - set(names)
    try:
        if "retry_policy" in names:
            row.retry_policy = valid_retry_policy(row.retry_policy)  # type: ignore[attr-defined]
        if "rate" in names:
            row.rate = valid_rate(row.rate)  # type: ignore[attr-defined]
        row.full_clean(exclude=others, validate_unique=False, validate_constraints=False)
    except ValidationError as error:
        texts = (f"{name}: {text}" for name, found in error.message_dict.items() for text in found)
        raise InvalidValue("; ".join(texts)) from error
