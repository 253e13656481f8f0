"""What each engine's flags, logs and endpoints mean. Knows texts and rules, never a channel to a host."""
