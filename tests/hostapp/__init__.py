"""A host project's app, as the tests need one: business rows beside the messages."""
