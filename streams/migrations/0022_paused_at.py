import streams.models.fields
from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('ems', '0021_blocked_messages'),
    ]

    operations = [
        migrations.AddField(
            model_name='consumergroup',
            name='paused_at',
            field=streams.models.fields.UtcDateTimeField(blank=True, editable=False, null=True, verbose_name='paused at'),
        ),
    ]
