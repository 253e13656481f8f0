# Describe the processes given, one a line.
for r_p; do r_describe "$r_p"; done
