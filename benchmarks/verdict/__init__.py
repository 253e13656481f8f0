"""False wins and power of the verdict, by simulation and on recorded tables."""
