# Show a sign of life. Arguments: base, fence, grace, deadline (as for arm). Starts the guard again if it was killed.
r_base "$1"
G=$BASE/guard
r_seen=0
[ -s "$BASE/fence" ] && read -r r_seen <"$BASE/fence"
if [ "$2" -lt "${r_seen:-0}" ]; then
    echo "!fence $r_seen"
    exit 90
fi
if ! [ -s "$G/token" ]; then
    echo '!unarmed'
    exit 90
fi
r_now
[ "$4" -gt 0 ] && r_end=$((NOW + $4)) || r_end=0
r_put_line "$G/lease" "$NOW $3 $r_end" || { echo "!rundir $G"; exit 90; }
r_not_fired
if r_guard_alive "$G"; then
    echo alive
else
    read -r r_token <"$G/token"
    r_detach "$G/out" /bin/sh "$G/guard.sh" "$BASE" "$r_token"
    echo restarted
fi
