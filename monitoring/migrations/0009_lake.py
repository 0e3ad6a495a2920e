import django.db.models.deletion
import streams.models.fields
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('ems', '0013_shadow_replays'),
        ('ems_monitoring', '0008_prepared_rule'),
    ]

    operations = [
        migrations.CreateModel(
            name='LakePosition',
            fields=[
                ('partition', models.OneToOneField(db_constraint=False, on_delete=django.db.models.deletion.DO_NOTHING, primary_key=True, related_name='+', serialize=False, to='ems.partition', verbose_name='partition')),
                ('first_offset', models.BigIntegerField(verbose_name='first offset')),
                ('next_offset', models.BigIntegerField(verbose_name='next offset')),
            ],
            options={
                'verbose_name': 'position of the lake',
                'verbose_name_plural': 'positions of the lake',
                'db_table': 'ems_monitoring_lake_position',
                'default_permissions': ('view',),
            },
        ),
        migrations.CreateModel(
            name='LakeFile',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('topic', streams.models.fields.NameField(max_length=127, verbose_name='topic')),
                ('day', models.DateField(help_text='In UTC, in which the messages were sequenced.', verbose_name='day')),
                ('path', models.CharField(help_text="Below the lake's folder.", max_length=1000, verbose_name='path')),
                ('messages', models.BigIntegerField(verbose_name='messages')),
                ('bytes', models.BigIntegerField(help_text='Of the bodies.', verbose_name='bytes')),
                ('size', models.BigIntegerField(help_text='Of the file.', verbose_name='size in bytes')),
                ('version', models.PositiveIntegerField(help_text="Of the file's columns.", verbose_name='version')),
                ('added_at', streams.models.fields.UtcDateTimeField(default=streams.models.fields.UtcNow, verbose_name='added at')),
                ('retired_at', streams.models.fields.UtcDateTimeField(blank=True, help_text='When it left the lake: other files, or the archive, hold its messages.', null=True, verbose_name='retired at')),
            ],
            options={
                'verbose_name': 'file of the lake',
                'verbose_name_plural': 'files of the lake',
                'db_table': 'ems_monitoring_lake',
                'default_permissions': ('view',),
                'indexes': [models.Index(fields=['topic', 'day'], name='ems_lake_day'), models.Index(fields=['retired_at'], name='ems_lake_retired')],
            },
        ),
    ]
