"""Owning processes on a host over SSH (or locally): launch, watch, stop with proof, restore, guard."""
