import django.db.models.deletion
import streams.models.fields
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('ems', '0002_streaming'),
        ('ems_monitoring', '0001_initial'),
    ]

    operations = [
        migrations.CreateModel(
            name='LedgerEntry',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', streams.models.fields.NameField(max_length=190, verbose_name='name')),
                ('batch', models.BigIntegerField(verbose_name='batch')),
                ('done_at', streams.models.fields.UtcDateTimeField(default=streams.models.fields.UtcNow, verbose_name='done at')),
            ],
            options={
                'verbose_name': 'ledger entry',
                'verbose_name_plural': 'ledger entries',
                'db_table': 'ems_monitoring_ledger',
                'default_permissions': ('view',),
                'constraints': [models.UniqueConstraint(fields=('name', 'batch'), name='ems_ledger_name')],
            },
        ),
        migrations.CreateModel(
            name='ReplayedMessage',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('replay', models.CharField(max_length=32, verbose_name='replay')),
                ('source', models.PositiveIntegerField(verbose_name='source partition')),
                ('offset', models.BigIntegerField(verbose_name='offset')),
                ('target', models.PositiveIntegerField(verbose_name='target partition')),
                ('key', streams.models.fields.NameField(max_length=255, null=True, verbose_name='key')),
                ('tag', streams.models.fields.NameField(max_length=64, verbose_name='tag')),
                ('headers', models.TextField(null=True, verbose_name='headers')),
                ('body', models.BinaryField(verbose_name='body')),
                ('body_type', models.CharField(choices=[('json', 'JSON'), ('text', 'text'), ('bytes', 'bytes')], max_length=5, verbose_name='body type')),
                ('size', models.PositiveIntegerField(verbose_name='size in bytes')),
            ],
            options={
                'verbose_name': 'replayed message',
                'verbose_name_plural': 'replayed messages',
                'db_table': 'ems_monitoring_replay',
                'default_permissions': ('view',),
                'constraints': [models.UniqueConstraint(fields=('replay', 'source', 'offset'), name='ems_replay_place')],
            },
        ),
        migrations.CreateModel(
            name='ArchivedDay',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('day', models.DateField(help_text='In UTC, in which the messages were sequenced.', verbose_name='day')),
                ('topic', streams.models.fields.NameField(max_length=127, verbose_name='topic')),
                ('number', models.PositiveIntegerField(verbose_name='number')),
                ('first_offset', models.BigIntegerField(verbose_name='first offset')),
                ('end_offset', models.BigIntegerField(help_text='The first one not in it.', verbose_name='end offset')),
                ('messages', models.BigIntegerField(verbose_name='messages')),
                ('bytes', models.BigIntegerField(verbose_name='bytes')),
                ('hash', models.CharField(help_text="The sum of all rows' xxHash64.", max_length=40, verbose_name='hash')),
                ('path', models.CharField(max_length=1000, verbose_name='path')),
                ('archived_at', streams.models.fields.UtcDateTimeField(default=streams.models.fields.UtcNow, verbose_name='archived at')),
                ('partition', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='ems.partition', verbose_name='partition')),
            ],
            options={
                'verbose_name': 'archived day',
                'verbose_name_plural': 'archived days',
                'db_table': 'ems_monitoring_archive',
                'default_permissions': ('view',),
                'indexes': [models.Index(fields=['topic', 'day'], name='ems_archive_topic')],
                'constraints': [models.UniqueConstraint(fields=('partition', 'day'), name='ems_archive_day')],
            },
        ),
    ]
