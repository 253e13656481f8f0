# Take the guard away; its log stays. Arguments: base, fence, lock wait.
r_base "$1"
r_make_base
G=$BASE/guard
r_lock "$3" || { echo '!busy'; exit 90; }
r_fence "$2"
rm -f "$G/token" "$G/lease"
r_guard_alive "$G" && kill -KILL "$r_p" 2>/dev/null
rm -f "$G/pid" "$G/home.sh" "$G/guard.sh" "$G/conf" "$G/kind" "$G/meta" "$G/fired" "$G/fired.seen" "$G/out" \
    "$BASE"/runs/.reserve.*
exit 0
