"""Defines TaskRun: a task that has begun, with its attempts and its result."""

from __future__ import annotations

from django.core.serializers.json import DjangoJSONEncoder
from django.db import models
from django.utils.translation import gettext_lazy as _

from streams.contrib.tasks.compat import TaskResultStatus
from streams.contrib.tasks.names import MAX_BACKEND, MAX_ID, MAX_PATH, MAX_QUEUE
from streams.models.fields import LooseForeignKey, NameField, TopicOrGroupField, UtcDateTimeField
from streams.models.namespaces import own


class TaskRunQuerySet(models.QuerySet["TaskRun"]):
    def finished(self) -> TaskRunQuerySet:
        return self.filter(status__in=ENDED)


class TaskRunManager(models.Manager["TaskRun"]):
    """The tasks of the queues of this namespace. ``_base_manager`` has all."""

    def get_queryset(self) -> TaskRunQuerySet:
        return TaskRunQuerySet(self.model, using=self._db).filter(own("queue"))


class TaskRun(models.Model):
    """A task from its first start on; before that it is a message, and nothing else.

    Its instants are of the clocks of the processes that enqueue and run it, as the result that
    these return: nothing is decided by them but what is old.
    """

    result_id = NameField(_("result"), max_length=MAX_ID)
    message_id = models.BigIntegerField(_("message id"))
    partition = models.IntegerField(_("partition"), null=True)
    offset = models.BigIntegerField(_("offset"), null=True)
    backend = NameField(_("backend"), max_length=MAX_BACKEND)
    queue = TopicOrGroupField(_("queue"), max_length=MAX_QUEUE)
    path = NameField(_("task"), max_length=MAX_PATH)
    priority = models.SmallIntegerField(_("priority"), default=0)
    batch = LooseForeignKey("ems_tasks.TaskBatch", verbose_name=_("batch"), null=True)
    arguments = models.JSONField(_("arguments"), encoder=DjangoJSONEncoder)
    run_after = UtcDateTimeField(_("run after"), null=True)
    status = models.CharField(_("status"), max_length=10, choices=TaskResultStatus.choices)
    enqueued_at = UtcDateTimeField(_("enqueued"))
    started_at = UtcDateTimeField(_("started"), null=True)
    last_attempted_at = UtcDateTimeField(_("last attempt"), null=True)
    finished_at = UtcDateTimeField(_("finished"), null=True)
    cancelled_at = UtcDateTimeField(_("cancelled"), null=True)
    # All that have begun, and how many of them were before the task was given out anew.
    attempts = models.IntegerField(_("attempts"), default=0)
    attempts_before = models.IntegerField(_("attempts before"), default=0)
    # Who has started the running attempt: only that one may write its end. It says of which
    # delivery that is: see new_token().
    token = models.BigIntegerField(_("token"), default=0)
    worker_ids = models.JSONField(_("workers"), default=list)
    errors = models.JSONField(_("errors"), default=list)
    return_value = models.JSONField(_("return value"), null=True)
    metadata = models.JSONField(_("metadata"), default=dict)
    copies = models.IntegerField(_("copies"), default=0)  # that an operator has enqueued

    objects = TaskRunManager()

    class Meta:
        db_table = "ems_task"
        verbose_name = _("task")
        verbose_name_plural = _("tasks")
        default_permissions = ("view",)
        permissions = (
            ("run_taskrun", _("Can run tasks again")),
            ("cancel_taskrun", _("Can cancel tasks")),
            ("copy_taskrun", _("Can edit tasks and run them")),
        )
        constraints = (models.UniqueConstraint(fields=["result_id"], name="ems_task_result"),)
        indexes = (
            models.Index(fields=["status", "finished_at"], name="ems_task_ended"),
            models.Index(fields=["queue", "status", "enqueued_at"], name="ems_task_queue"),
            models.Index(fields=["path", "status"], name="ems_task_path"),
            models.Index(fields=["message_id"], name="ems_task_message"),
            models.Index(fields=["batch", "status"], name="ems_task_of_batch"),
        )

    def __str__(self) -> str:
        return f"{self.path} {self.result_id}"


ENDED = (TaskResultStatus.SUCCESSFUL.value, TaskResultStatus.FAILED.value)
