from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('ems', '0022_paused_at'),
    ]

    operations = [
        migrations.AlterModelOptions(
            name='consumergroup',
            options={'default_permissions': ('view', 'change'), 'permissions': (('pause_consumergroup', 'Can pause consumer groups'), ('resume_consumergroup', 'Can resume consumer groups'), ('forget_consumergroup', 'Can forget consumer groups'), ('reset_consumergroup', 'Can reset consumer groups'), ('replay_consumergroup', 'Can replay messages to consumer groups'), ('rehearse_consumergroup', 'Can rehearse messages with the handlers of groups'), ('retry_consumergroup', 'Can retry blocked messages of consumer groups now'), ('skip_consumergroup', 'Can skip blocked messages of consumer groups')), 'verbose_name': 'consumer group', 'verbose_name_plural': 'consumer groups'},
        ),
        migrations.DeleteModel(
            name='ShadowCall',
        ),
        migrations.DeleteModel(
            name='ShadowRun',
        ),
    ]
