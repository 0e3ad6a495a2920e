import django.db.models.deletion
import streams.models.config
import streams.models.fields
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('ems', '0001_initial'),
    ]

    operations = [
        migrations.AlterModelOptions(
            name='message',
            options={'default_permissions': ('view',), 'permissions': (('view_body', 'Can view bodies of messages and dead letters'), ('cancel_message', 'Can cancel delayed messages')), 'verbose_name': 'message', 'verbose_name_plural': 'messages'},
        ),
        migrations.AddField(
            model_name='cursor',
            name='alone',
            field=models.BooleanField(db_default=False, default=False, help_text='The process that handled the next message died: it runs by itself.', verbose_name='alone'),
        ),
        migrations.AddField(
            model_name='cursor',
            name='log_offset',
            field=models.BigIntegerField(db_default=0, default=0, help_text='Deliveries below it may have been purged.', verbose_name='log kept from'),
        ),
        migrations.AlterModelOptions(
            name='topic',
            options={'default_permissions': ('view', 'add', 'change'), 'permissions': (('grow_topic', 'Can add partitions to topics'), ('retire_topic', 'Can retire topics'), ('delete_topic', 'Can delete topics')), 'verbose_name': 'topic', 'verbose_name_plural': 'topics'},
        ),
        migrations.AddField(
            model_name='cursor',
            name='reset_at',
            field=streams.models.fields.UtcDateTimeField(blank=True, null=True, verbose_name='reset at'),
        ),
        migrations.AlterField(
            model_name='cursor',
            name='previous_offset',
            field=models.BigIntegerField(blank=True, help_text='Where it was before the last reset; of a replay: where it was cancelled.', null=True, verbose_name='previous offset'),
        ),
        migrations.AlterModelOptions(
            name='consumergroup',
            options={'default_permissions': ('view', 'change'), 'permissions': (('pause_consumergroup', 'Can pause consumer groups'), ('resume_consumergroup', 'Can resume consumer groups'), ('forget_consumergroup', 'Can forget consumer groups'), ('reset_consumergroup', 'Can reset consumer groups'), ('replay_consumergroup', 'Can replay messages to consumer groups')), 'verbose_name': 'consumer group', 'verbose_name_plural': 'consumer groups'},
        ),
        migrations.AddField(
            model_name='delivery',
            name='passed',
            field=models.PositiveIntegerField(db_default=0, default=0, help_text='Messages without a tag that the group wants.', verbose_name='passed over'),
        ),
        migrations.AddField(
            model_name='partition',
            name='archived_offset',
            field=models.BigIntegerField(db_default=0, default=0, help_text='Messages below it are in the archive, and verified.', verbose_name='archived offset'),
        ),
        migrations.AddField(
            model_name='topic',
            name='archive',
            field=models.BooleanField(db_default=False, default=False, help_text='Nothing is purged before the Spark job “archive” has it in the archive.', verbose_name='archive'),
        ),
        migrations.AddField(
            model_name='topic',
            name='retention_consumed',
            field=models.BooleanField(db_default=False, default=False, help_text='Messages that every group has finished are not kept any longer.', verbose_name='purge what is consumed'),
        ),
        migrations.AddField(
            model_name='topic',
            name='retention_count',
            field=models.PositiveBigIntegerField(blank=True, help_text='How many messages of each partition are kept at most; empty: all.', null=True, verbose_name='retention in messages'),
        ),
        migrations.AlterField(
            model_name='systemconfig',
            name='name',
            field=models.CharField(choices=streams.models.config.names, max_length=64, verbose_name='name'),
        ),
        migrations.CreateModel(
            name='DedupKey',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('key_hash', streams.models.fields.HashField(verbose_name='SHA-256 of the key')),
                ('message_id', models.BigIntegerField(null=True, verbose_name='message id')),
                ('partition', models.PositiveIntegerField(default=0, verbose_name='partition')),
                ('expires_at', streams.models.fields.UtcDateTimeField(verbose_name='expires at')),
                ('topic', models.ForeignKey(db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='ems.topic', verbose_name='topic')),
            ],
            options={
                'verbose_name': 'dedup key',
                'verbose_name_plural': 'dedup keys',
                'db_table': 'ems_dedup',
                'default_permissions': ('view',),
                'indexes': [models.Index(fields=['expires_at'], name='ems_dedup_expiry'), models.Index(fields=['message_id'], name='ems_dedup_message')],
                'constraints': [models.UniqueConstraint(fields=('topic', 'key_hash'), name='ems_dedup_key')],
            },
        ),
    ]
