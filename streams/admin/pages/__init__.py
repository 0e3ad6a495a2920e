"""The admin pages, one noun a file."""
