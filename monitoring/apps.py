from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class MonitoringConfig(AppConfig):
    name = "monitoring"
    # A bare label "monitoring" may be taken in the host project, and can never be changed.
    label = "ems_monitoring"
    verbose_name = _("Streams monitoring")
    default_auto_field = "django.db.models.BigAutoField"
