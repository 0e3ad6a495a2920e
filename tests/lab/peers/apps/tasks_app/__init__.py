"""The task of the peers that implement the Tasks of Django."""
