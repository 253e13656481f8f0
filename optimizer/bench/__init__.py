"""How fast a server is, whether a difference is a win, whether its output is right. Knows a URL, never a host."""
