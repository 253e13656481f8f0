# One look at a run. Arguments: base, run id, main pid, its start time, port, log offset, log limit.
r_base "$1"
DIR=$BASE/runs/$2
r_members "$2"
r_remember "$2"
r_alive=0
r_stat "$3" && [ "$S_START" = "$4" ] && r_alive=1
# Where /proc hides a process (hidepid, and it has capabilities of its own), its supervisor and the kernel tell.
if [ $r_alive = 0 ] && ! [ -d "/proc/$3" ] && ! [ -s "$DIR/exit" ] && [ -n "${r_leader:-}" ] && r_stat "$r_leader"; then
    r_there "$3" && r_alive=1
fi
# The supervisor writes the exit status a moment after the end.
r_tries=0
while [ $r_alive = 0 ] && ! [ -s "$DIR/exit" ] && [ $r_tries -lt 100 ] && [ -n "${r_leader:-}" ] && r_stat "$r_leader"; do
    r_nap 0.05
    r_tries=$((r_tries + 1))
done
r_exit=-
[ $r_alive = 0 ] && [ -s "$DIR/exit" ] && read -r r_exit <"$DIR/exit"
r_look() {
    r_pids='' LISTEN='' r_them='' r_strange=0
    for r_m in $MEMBERS; do r_pids="$r_pids ${r_m%:*}"; done
    # shellcheck disable=SC2086
    [ "$1" -gt 0 ] && r_listen "$1" $r_pids
    for r_l in $LISTEN; do
        r_them="$r_them ${r_l%:*}"
        case "$r_pids " in *" ${r_l%:*} "*) ;; *) r_strange=1 ;; esac
    done
}
r_look "$5"
# One that was born between the two looks is no stranger.
[ $r_strange = 1 ] && r_members "$2" && r_look "$5"
r_size=$(wc -c 2>/dev/null <"$DIR/log") || r_size=0
[ -s "$DIR/boot" ] && [ "$r_then" != "$BOOT" ] && echo 'rebooted 1'
printf 'alive %s\nexit %s\npids%s\nlisten%s\nsize %s\ncpu %s\nlog\n' "$r_alive" "$r_exit" "$r_pids" "$r_them" "$((r_size))" "$CPU"
if [ "$7" -gt 0 ] && [ "$((r_size))" -gt "$6" ]; then
    tail -c "+$(($6 + 1))" "$DIR/log" | head -c "$7"
fi
