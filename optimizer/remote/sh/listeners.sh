# Who listens on a port: one described process a line. Argument: port.
r_listen "$1"
for r_l in $LISTEN; do r_describe "${r_l%:*}" "${r_l#*:}"; done
