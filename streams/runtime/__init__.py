"""What runs the consumers. streams.models never imports it."""
