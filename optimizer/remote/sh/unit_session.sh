# The session of a unit's main process, nothing when it has none. Arguments: --system or --user, unit.
BASE=${TMPDIR:-/tmp}
r_pid=$(r_limited 50 systemctl "$1" show -p MainPID --value -- "$2")
case $r_pid in '' | 0 | *[!0-9]*) ;; *) r_stat "$r_pid" && echo "$S_SID" ;; esac
exit 0
