"""What to try next: the space, its valid canonical configurations, the sampler, and recorded replays."""
