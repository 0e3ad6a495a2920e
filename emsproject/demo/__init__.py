"""Shows EMS: an airport sends an event for each departure, and three groups handle it."""
