"""The tests of EMS, and the set-up that brings its own servers (see dev.py)."""
