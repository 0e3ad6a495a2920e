"""Fields of the models: instants in UTC, names byte for byte, references without a constraint."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from django.core.exceptions import ValidationError
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.translation import gettext_lazy as _

from streams.conf import name_prefix

# What can be set to a foreign key, and what it gives, as the type checker has it.
_ST = TypeVar("_ST")
_GT = TypeVar("_GT")


class UtcNow(models.Func):
    """The database's clock in UTC at the start of the statement, plus ``delay``.

    Django's ``Now()`` is in the session's time zone: on a +08:00 server it is eight hours off.
    """

    def __init__(self, delay: timedelta = timedelta(0)) -> None:
        self.delay = delay
        super().__init__(output_field=UtcDateTimeField())

    def as_sql(  # type: ignore[override]
        self, compiler: Any, connection: Any, **context: Any
    ) -> tuple[str, tuple[Any, ...]]:
        if not self.delay:
            return "UTC_TIMESTAMP(6)", ()
        microseconds = self.delay // timedelta(microseconds=1)
        return "(UTC_TIMESTAMP(6) + INTERVAL %s MICROSECOND)", (microseconds,)

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        # SQLite's clock has milliseconds only; the text sorts in the same way as Django's own.
        modifier = f"{self.delay.total_seconds():+.6f} seconds"
        return "STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW', %s)", (modifier,)


class UtcDateTimeField(models.DateTimeField):  # type: ignore[type-arg]  # generic only in stubs
    """An instant in UTC, whatever TIME_ZONE or USE_TZ the project has.

    It takes and gives aware datetimes only, and raises ValueError for a naive one.
    """

    def to_python(self, value: Any) -> Any:
        # UtcNow, a new row's default, stands for the server's clock: there is nothing to parse.
        return value if isinstance(value, UtcNow) else super().to_python(value)

    def get_prep_value(self, value: Any) -> Any:
        if isinstance(value, datetime) and value.tzinfo is None:
            raise ValueError(f"{self.name} needs an aware datetime, not {value!r}")
        return models.Field.get_prep_value(self, value)

    def get_db_prep_value(
        self, value: Any, connection: BaseDatabaseWrapper, prepared: bool = False
    ) -> Any:
        if not prepared:
            value = self.get_prep_value(value)
        if isinstance(value, datetime):
            return to_db(value)
        return value

    def from_db_value(self, value: Any, *args: Any) -> datetime | None:
        # The backend has read the digits in the zone of the connection, but they are UTC.
        return None if value is None else value.replace(tzinfo=UTC)


def to_db(value: datetime) -> str:
    """Return an aware datetime as the text that EMS stores."""
    return str(value.astimezone(UTC).replace(tzinfo=None))


class LooseForeignKey(models.ForeignKey[_ST, _GT]):
    """A reference to a row by its number alone, without constraint and index, for the hot tables.

    With a constraint each INSERT would lock the row that it names, and wait for the sequencer that
    holds a partition; and the indexes of these tables are made for their statements. There is no
    reverse relation unless it is named, and migrations have it as a ForeignKey.
    """

    def __init__(self, to: Any, on_delete: Any = models.DO_NOTHING, **options: Any) -> None:
        loose = {"related_name": "+", "db_constraint": False, "db_index": False}
        super().__init__(to, on_delete, **{**loose, **options})

    def deconstruct(self) -> Any:
        name, _path, args, options = super().deconstruct()
        return name, "django.db.models.ForeignKey", args, options


class NamespacedMixin:
    """A field that puts the prefix of EMS["NAMESPACE"] before a name when it is written.

    It is taken off on the way out. So whatever goes through the ORM, a lookup too, sees names
    without it. A name of another namespace comes out with its prefix: see namespaces.py.
    """

    def get_prep_value(self, value: Any) -> Any:
        value = super().get_prep_value(value)  # type: ignore[misc]
        return value if value is None else name_prefix() + value

    def from_db_value(self, value: Any, *args: Any) -> Any:
        return value if value is None else value.removeprefix(name_prefix())

    def clean(self, value: Any, model_instance: Any) -> Any:
        value = super().clean(value, model_instance)  # type: ignore[misc]
        room = self.max_length - len(name_prefix())  # type: ignore[attr-defined]
        if value and len(value) > room:
            raise ValidationError(_("At most %d characters, with EMS['NAMESPACE'].") % room)
        return value


class HashField(models.BinaryField):  # type: ignore[type-arg]  # generic only in stubs
    """The 32 bytes of a SHA-256, with a fixed length: every server can index it."""

    def db_type(self, connection: BaseDatabaseWrapper) -> str | None:
        return "binary(32)" if connection.vendor == "mysql" else super().db_type(connection)


class SecondsField(models.FloatField):  # type: ignore[type-arg]  # generic only in stubs
    """A duration in seconds. Migrations have it as a FloatField."""

    def deconstruct(self) -> Any:
        name, _path, args, options = super().deconstruct()
        return name, "django.db.models.FloatField", args, options


class NameField(models.CharField):  # type: ignore[type-arg]  # generic only in stubs
    """A name or key that is compared byte for byte, even if the server ignores case."""

    def db_parameters(self, connection: BaseDatabaseWrapper) -> Any:
        parameters = super().db_parameters(connection)
        if connection.vendor == "mysql":
            parameters["collation"] = "utf8mb4_bin"
        return parameters

    def clean(self, value: Any, model_instance: Any) -> Any:
        value = super().clean(value, model_instance)
        if value and value != value.strip():
            raise ValidationError(_("Blanks before or after a name are not allowed."))
        return value


class TopicOrGroupField(NamespacedMixin, NameField):
    """The name of a topic or group. Migrations have it as a NameField."""

    def deconstruct(self) -> Any:
        name, _path, args, options = super().deconstruct()
        return name, "streams.models.fields.NameField", args, options


class StepNameField(NamespacedMixin, models.CharField):  # type: ignore[type-arg]
    """The name of a step, which each namespace runs for itself."""

    def deconstruct(self) -> Any:
        name, _path, args, options = super().deconstruct()
        return name, "django.db.models.CharField", args, options
