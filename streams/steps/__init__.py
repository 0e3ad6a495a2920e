"""Runs the time-driven steps, each with a row of ems_step: bounded, and safe to run twice."""
