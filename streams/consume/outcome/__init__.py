"""What becomes of a delivery: settled, released, expired, retried or dead."""
