from django.apps import AppConfig


class HostAppConfig(AppConfig):
    name = "tests.hostapp"
    label = "hostapp"
