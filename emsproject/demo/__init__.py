"""The demo: an airport that sends an event for each departure, and three groups that handle it."""
