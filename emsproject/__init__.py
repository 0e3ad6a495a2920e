"""Configures a Django project that runs EMS alone: for the demo, and as an example to copy."""
