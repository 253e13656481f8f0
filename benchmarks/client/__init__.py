"""How true and how cheap the load client is, against a server whose timing is known."""
