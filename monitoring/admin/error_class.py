"""Defines the page of the error classes: what handlers raised, and how often."""

from __future__ import annotations

from django.contrib import admin

from monitoring.admin.base import RollUpAdmin
from monitoring.models import ErrorClass
from streams.admin.parts.filters import GroupFilter


@admin.register(ErrorClass)
class ErrorClassAdmin(RollUpAdmin):
    list_display = ("minute", "group", "error_class", "failed", "dead")
    list_filter = (GroupFilter,)
    ordering = ("-minute", "-group_id", "-id")
    order_of_chosen = ("-minute", "-error_class")
    fields = (("minute", "group"), ("error_class", "failed", "dead"))
