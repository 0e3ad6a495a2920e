from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('ems_tasks', '0001_tasks'),
    ]

    operations = [
        migrations.AlterModelOptions(
            name='taskschedule',
            options={'default_permissions': ('view',), 'permissions': (('pause_taskschedule', 'Can pause schedules of tasks'), ('run_taskschedule', 'Can run schedules of tasks now')), 'verbose_name': 'schedule of a task', 'verbose_name_plural': 'schedules of tasks'},
        ),
        migrations.AddField(
            model_name='taskschedule',
            name='runs',
            field=models.IntegerField(default=0, verbose_name='runs by hand'),
        ),
    ]
