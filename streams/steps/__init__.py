"""The time-driven steps, one row of ems_step each: bounded, and safe to run twice at once."""
