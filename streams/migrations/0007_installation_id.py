import uuid
from typing import Any

from django.db import migrations


def identify(apps: Any, schema_editor: Any) -> None:
    """Write a random id, which tells this database from others that share its Redis."""
    config = apps.get_model("ems", "SystemConfig").objects.using(schema_editor.connection.alias)
    config.get_or_create(name="installationId", defaults={"value": uuid.uuid4().hex[:16]})


class Migration(migrations.Migration):

    dependencies = [
        ('ems', '0006_message_retention'),
    ]

    operations = [
        # The hint is for routers that allow each model by its name.
        migrations.RunPython(identify, migrations.RunPython.noop, hints={"model_name": "systemconfig"}),
    ]
