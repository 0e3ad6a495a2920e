"""What an operator does: topics, groups, resets and replays."""
