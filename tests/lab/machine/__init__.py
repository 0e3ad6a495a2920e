"""Random testing against a simple model."""
