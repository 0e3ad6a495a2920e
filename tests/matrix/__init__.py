"""Uses the wheel as a user gets it: on each Python, Django, server and driver that can be had."""
