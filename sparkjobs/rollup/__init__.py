"""Makes roll-ups: the figures of a window, written with its run in one transaction."""
