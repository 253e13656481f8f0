# All runs of this base that live: "run ID KIND PID START DIR", then the run's meta line. Argument: base.
r_base "$1"
for r_each in $(r_alive_ids); do
    DIR=$BASE/runs/$r_each
    r_pid=0 r_start=0
    [ -s "$DIR/pid" ] && read -r r_pid r_start <"$DIR/pid"
    printf 'run %s %s %s %s %s\n' "$r_each" "$(r_kind "$r_each")" "$r_pid" "$r_start" "$DIR"
    if [ -s "$DIR/meta" ]; then head -n 1 "$DIR/meta"; else echo '{}'; fi
done
