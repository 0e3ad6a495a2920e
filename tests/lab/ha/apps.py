from django.apps import AppConfig


class HaConfig(AppConfig):
    name = "tests.lab.ha"
    label = "ha"
