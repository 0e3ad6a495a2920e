from django.apps import AppConfig


class HaConfig(AppConfig):
    name = "tests.ha"
    label = "ha"
