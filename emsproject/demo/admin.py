"""Registers the admin pages of the demo, which are read-only."""

from django.contrib import admin
from django.http import HttpRequest

from emsproject.demo.models import Flight, Handled, Ticket


class ReadOnlyModel(admin.ModelAdmin):  # type: ignore[type-arg]  # generic only in stubs
    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False


@admin.register(Flight)
class FlightAdmin(ReadOnlyModel):
    list_display = ("code", "date", "scheduled", "departed", "delay", "origin", "dest")
    search_fields = ("=number", "=carrier", "=dest")


@admin.register(Handled)
class HandledAdmin(ReadOnlyModel):
    list_display = ("group", "partition", "offset", "attempt", "note")
    search_fields = ("=group", "=flight", "=attempt")


@admin.register(Ticket)
class TicketAdmin(ReadOnlyModel):
    list_display = ("passenger", "flight", "mailed")
