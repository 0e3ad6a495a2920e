"""Configures the Django app of the demo."""

from django.apps import AppConfig


class DemoConfig(AppConfig):
    name = "emsproject.demo"
    label = "ems_demo"
    verbose_name = "EMS demo"
    default_auto_field = "django.db.models.BigAutoField"
