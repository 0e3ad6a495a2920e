"""Shows roll-ups, live lag and alarms of EMS inside the Django admin."""
