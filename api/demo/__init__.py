"""The demo: a real server, a real SSH server, and a whole study on this machine."""
