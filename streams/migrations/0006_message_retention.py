from typing import Any

from django.db import migrations, models

DAYS, FIGURE_DAYS = 7, 400


def decide(apps: Any, schema_editor: Any) -> None:
    """Write how long messages and figures are kept; for ever where topics rely on that."""
    using = schema_editor.connection.alias
    has_topics = apps.get_model("ems", "Topic").objects.using(using).exists()
    config = apps.get_model("ems", "SystemConfig").objects.using(using)
    value = {"value": 0 if has_topics else DAYS}
    config.get_or_create(name="messageRetentionDays", defaults=value)
    value = {"value": 0 if has_topics else FIGURE_DAYS}
    config.get_or_create(name="figureRetentionDays", defaults=value)


class Migration(migrations.Migration):

    dependencies = [
        ('ems', '0005_key_index'),
    ]

    operations = [
        migrations.AlterField(
            model_name='topic',
            name='retention_seconds',
            field=models.PositiveBigIntegerField(blank=True, help_text='How long sequenced messages are kept; 0: for ever. If all of these fields are empty, the setting messageRetentionDays holds.', null=True, verbose_name='retention in seconds'),
        ),
        # The hint is for routers that allow each model by its name.
        migrations.RunPython(decide, migrations.RunPython.noop, hints={"model_name": "systemconfig"}),
    ]
