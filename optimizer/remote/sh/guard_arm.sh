# Put a guard on the host and start it. Arguments: base, fence, lock wait, token, grace, seconds to the deadline (0:
# none), home run id, port, unit or "-", meta, home launcher; the guard itself is "$12".
r_base "$1"
r_make_base
G=$BASE/guard
r_lock "$3" || { echo '!busy'; exit 90; }
r_no_room() {
    rm -f "$G"/*.new "$BASE"/runs/.reserve.*
    echo "!rundir $BASE"
    exit 90
}
r_reserve() {
    [ -s "$BASE/runs/.reserve.$1" ] || head -c "$2" /dev/urandom >"$BASE/runs/.reserve.$1"
}
r_fence "$2" || r_no_room
shift 3
r_now
[ "$3" -gt 0 ] && r_end=$((NOW + $3)) || r_end=0
# All of it is there before any of it counts: half a launcher would leave the host without home. The reserve, first for
# words and then for home, is for a disk that fills up later; some disks would compress what is no noise.
r_put "$G/conf.new" "$4 $5 $6 $r_umask" && r_put "$G/kind.new" home && r_put "$G/meta.new" "$7" && r_put "$G/home.sh.new" "$8" &&
    r_put "$G/guard.sh.new" "$9" && r_put_line "$G/lease.new" "$NOW $2 $r_end" && r_put "$G/token.new" "$1" &&
    { r_reserve 1 65536 && r_reserve 2 1048576; } 2>/dev/null && r_has_room || r_no_room
r_guard_alive "$G" && kill -KILL "$r_p" 2>/dev/null
rm -f "$G/pid"
[ -e "$G/fired" ] && mv "$G/fired" "$G/fired.seen"
for r_f in conf kind meta home.sh guard.sh lease token; do mv "$G/$r_f.new" "$G/$r_f"; done
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
