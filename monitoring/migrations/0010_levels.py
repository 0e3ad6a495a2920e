import django.db.models.deletion
import streams.models.fields
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('ems', '0013_shadow_replays'),
        ('ems_monitoring', '0009_lake'),
    ]

    operations = [
        migrations.AddField(
            model_name='latency',
            name='histogram',
            field=models.TextField(blank=True, help_text='Bucket and count; from it the percentiles of longer times are computed.', null=True, verbose_name='histogram'),
        ),
        migrations.CreateModel(
            name='BacklogLevel',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('grain', models.PositiveSmallIntegerField(choices=[(60, 'hour'), (1440, 'day')], verbose_name='grain')),
                ('start', streams.models.fields.UtcDateTimeField(verbose_name='from')),
                ('behind', models.BigIntegerField(blank=True, null=True, verbose_name='behind')),
                ('open', models.BigIntegerField(verbose_name='open')),
                ('waiting', models.BigIntegerField(verbose_name='retries')),
                ('dead', models.BigIntegerField(verbose_name='dead')),
                ('age_seconds', models.FloatField(blank=True, null=True, verbose_name='age')),
                ('group', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='ems.consumergroup', verbose_name='group')),
            ],
            options={
                'verbose_name': 'backlogs of hours and days',
                'verbose_name_plural': 'backlogs of hours and days',
                'db_table': 'ems_monitoring_backlog_level',
                'abstract': False,
                'default_permissions': ('view',),
                'constraints': [models.UniqueConstraint(fields=('grain', 'start', 'group'), name='ems_backlog_level_place')],
            },
        ),
        migrations.CreateModel(
            name='ConsumptionLevel',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('grain', models.PositiveSmallIntegerField(choices=[(60, 'hour'), (1440, 'day')], verbose_name='grain')),
                ('start', streams.models.fields.UtcDateTimeField(verbose_name='from')),
                ('deliveries', models.BigIntegerField(verbose_name='deliveries')),
                ('consumed', models.BigIntegerField(verbose_name='consumed')),
                ('failed', models.BigIntegerField(verbose_name='failed')),
                ('retried', models.BigIntegerField(verbose_name='retried')),
                ('dead', models.BigIntegerField(verbose_name='dead')),
                ('lost', models.BigIntegerField(verbose_name='lost')),
                ('missing', models.BigIntegerField(verbose_name='missing')),
                ('passed', models.BigIntegerField(verbose_name='passed over')),
                ('busy_seconds', models.FloatField(verbose_name='busy seconds')),
                ('group', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='ems.consumergroup', verbose_name='group')),
            ],
            options={
                'verbose_name': 'consumption of hours and days',
                'verbose_name_plural': 'consumption of hours and days',
                'db_table': 'ems_monitoring_consumption_level',
                'abstract': False,
                'default_permissions': ('view',),
                'constraints': [models.UniqueConstraint(fields=('grain', 'start', 'group'), name='ems_consumption_level_place')],
            },
        ),
        migrations.CreateModel(
            name='ErrorLevel',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('grain', models.PositiveSmallIntegerField(choices=[(60, 'hour'), (1440, 'day')], verbose_name='grain')),
                ('start', streams.models.fields.UtcDateTimeField(verbose_name='from')),
                ('error_class', models.CharField(max_length=255, verbose_name='error class')),
                ('failed', models.BigIntegerField(verbose_name='failed')),
                ('dead', models.BigIntegerField(verbose_name='dead')),
                ('group', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='ems.consumergroup', verbose_name='group')),
            ],
            options={
                'verbose_name': 'error classes of hours and days',
                'verbose_name_plural': 'error classes of hours and days',
                'db_table': 'ems_monitoring_error_level',
                'abstract': False,
                'default_permissions': ('view',),
                'constraints': [models.UniqueConstraint(fields=('grain', 'start', 'group', 'error_class'), name='ems_error_level_place')],
            },
        ),
        migrations.CreateModel(
            name='LatencyLevel',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('grain', models.PositiveSmallIntegerField(choices=[(60, 'hour'), (1440, 'day')], verbose_name='grain')),
                ('start', streams.models.fields.UtcDateTimeField(verbose_name='from')),
                ('leg', models.CharField(choices=[('sequenced', 'sent → in the log'), ('claimed', 'in the log → claimed'), ('done', 'claimed → done'), ('total', 'sent → done')], max_length=9, verbose_name='leg')),
                ('messages', models.BigIntegerField(verbose_name='messages')),
                ('mean', models.FloatField(verbose_name='mean')),
                ('worst', models.FloatField(verbose_name='longest')),
                ('histogram', models.TextField(blank=True, help_text='Empty if one of its minutes has none.', verbose_name='histogram')),
                ('group', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='ems.consumergroup', verbose_name='group')),
            ],
            options={
                'verbose_name': 'latency of hours and days',
                'verbose_name_plural': 'latency of hours and days',
                'db_table': 'ems_monitoring_latency_level',
                'abstract': False,
                'default_permissions': ('view',),
                'constraints': [models.UniqueConstraint(fields=('grain', 'start', 'group', 'leg'), name='ems_latency_level_place')],
            },
        ),
        migrations.CreateModel(
            name='TrafficLevel',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('grain', models.PositiveSmallIntegerField(choices=[(60, 'hour'), (1440, 'day')], verbose_name='grain')),
                ('start', streams.models.fields.UtcDateTimeField(verbose_name='from')),
                ('messages', models.BigIntegerField(verbose_name='messages')),
                ('bytes', models.BigIntegerField(verbose_name='bytes')),
                ('delayed', models.BigIntegerField(verbose_name='delayed')),
                ('partition', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='ems.partition', verbose_name='partition')),
            ],
            options={
                'verbose_name': 'traffic of hours and days',
                'verbose_name_plural': 'traffic of hours and days',
                'db_table': 'ems_monitoring_traffic_level',
                'abstract': False,
                'default_permissions': ('view',),
                'constraints': [models.UniqueConstraint(fields=('grain', 'start', 'partition'), name='ems_traffic_level_place')],
            },
        ),
    ]
