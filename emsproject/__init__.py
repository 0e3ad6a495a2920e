"""The Django project that runs EMS on its own: for the demo, and as an example to copy."""
