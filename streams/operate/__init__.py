"""Does what an operator asks for: changes of topics and groups, resets and replays."""
