from django.apps import AppConfig


class ScenariosConfig(AppConfig):
    name = "tests.lab.scenarios"
    label = "scenarios"
    default_auto_field = "django.db.models.BigAutoField"
