"""The edges people touch: REST, pages, and the `ratchet` command line."""
