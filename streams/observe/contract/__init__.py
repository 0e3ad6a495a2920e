"""What the consumers of the project say of the bodies of its topics."""
