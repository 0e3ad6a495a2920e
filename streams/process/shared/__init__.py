"""What the threads of a consumer process share."""
