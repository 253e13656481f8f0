# Put a guard on the host and start it. Arguments: base, fence, lock wait, token, grace, seconds to the deadline (0:
# none), home run id, port, unit or "-", meta, home launcher; the guard itself is "$12".
r_base "$1"
r_make_base
G=$BASE/guard
r_lock "$3" || { echo '!busy'; exit 90; }
r_fence "$2"
r_guard_alive "$G" && kill -KILL "$r_p" 2>/dev/null
rm -f "$G/pid"
[ -e "$G/fired" ] && mv "$G/fired" "$G/fired.seen"
shift 3
printf '%s %s %s\n' "$4" "$5" "$6" >"$G/conf"
printf '%s\n' "$7" >"$G/meta"
printf '%s\n' "$8" >"$G/home.sh"
printf '%s\n' "$9" >"$G/guard.sh"
r_now
[ "$3" -gt 0 ] && r_end=$((NOW + $3)) || r_end=0
echo "$NOW $2 $r_end" >"$G/lease"
echo "$1" >"$G/token"
r_detach "$G/out" /bin/sh "$G/guard.sh" "$BASE" "$1"
r_tries=0
while ! [ -s "$G/pid" ] && [ $r_tries -lt 300 ]; do
    r_nap 0.01
    r_tries=$((r_tries + 1))
done
if ! [ -s "$G/pid" ]; then
    echo "!start the guard: $(tail -c 300 "$G/out" | tr '\n' ' ')"
    exit 90
fi
read -r r_p r_s <"$G/pid"
echo "pid $r_p $r_s"
