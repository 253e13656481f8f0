# One look at a run. Arguments: base, run id, main pid, its start time, port, log offset, log limit.
r_base "$1"
DIR=$BASE/runs/$2
r_members "$2"
r_remember "$2"
r_alive=0
r_stat "$3" && [ "$S_START" = "$4" ] && r_alive=1
# The supervisor writes the exit status a moment after the end.
r_tries=0
while [ $r_alive = 0 ] && ! [ -s "$DIR/exit" ] && [ $r_tries -lt 100 ] && [ -n "${r_leader:-}" ] && r_stat "$r_leader"; do
    r_nap 0.05
    r_tries=$((r_tries + 1))
done
r_exit=-
[ $r_alive = 0 ] && [ -s "$DIR/exit" ] && read -r r_exit <"$DIR/exit"
r_pids=''
for r_m in $MEMBERS; do r_pids="$r_pids ${r_m%:*}"; done
LISTEN=''
# shellcheck disable=SC2086
[ "$5" -gt 0 ] && r_listen "$5" $r_pids
r_who=''
for r_l in $LISTEN; do r_who="$r_who ${r_l%:*}"; done
r_size=$(wc -c 2>/dev/null <"$DIR/log") || r_size=0
[ -s "$DIR/boot" ] && [ "$r_then" != "$BOOT" ] && echo 'rebooted 1'
printf 'alive %s\nexit %s\npids%s\nlisten%s\nsize %s\ncpu %s\nlog\n' "$r_alive" "$r_exit" "$r_pids" "$r_who" "$((r_size))" "$CPU"
if [ "$7" -gt 0 ] && [ "$((r_size))" -gt "$6" ]; then
    tail -c "+$(($6 + 1))" "$DIR/log" | head -c "$7"
fi
