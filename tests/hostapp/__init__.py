"""Is a host project's app for the tests: it has business rows beside the messages."""
