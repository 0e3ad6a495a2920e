"""What the columns of a group, a message, a dead letter … are: read by the commands and HTTP."""
