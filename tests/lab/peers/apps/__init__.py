"""One program for each peer: ``setup``, ``send FIRST COUNT RATE`` and ``work one|batch``."""
