# Start one server. Arguments: base, run id, fence, lock wait (1/100 s), port, kind, meta (one JSON line),
# gpu (1: remember the memory in use), launcher (the text of the run's launch.sh).
r_base "$1"
r_make_base
r_lock "$4" || { echo '!busy'; exit 90; }
r_no_room() {
    echo "!rundir $BASE"
    exit 90
}
r_fence "$3" || [ "$6" = home ] || r_no_room
[ "$6" = home ] || [ "$3" = - ] || r_not_fired
DIR=$BASE/runs/$2
r_report() {
    read -r r_pid r_start <"$DIR/pid"
    [ -s "$DIR/oom" ] || r_oom_mark "$r_pid" >"$DIR/oom"
    printf 'started %s %s\ndir %s\n' "$r_pid" "$r_start" "$DIR"
    exit 0
}
# The same run id twice is the same launch, asked again after a cut connection.
if [ -s "$DIR/pid" ]; then
    r_report
fi
for r_alive in $(r_alive_ids); do
    echo "!alive $r_alive $(r_kind "$r_alive")"
    exit 90
done
r_listen "$5"
if [ -n "$LISTEN" ]; then
    for r_l in $LISTEN; do
        printf '!port '
        r_describe "${r_l%:*}" "${r_l#*:}"
    done
    exit 90
fi
[ "$6" = home ] && r_make_room
mkdir -p "$DIR" && : >>"$DIR/log" && r_put "$DIR/kind" "$6" && r_put "$DIR/meta" "$7" &&
    r_put "$DIR/launch.sh" "$9" && r_has_room || r_no_room
if [ "$8" = 1 ]; then
    r_smi --query-gpu=index,memory.used --format=csv,noheader,nounits >"$DIR/gpu_before"
    [ $? = 124 ] && { echo '!smi'; exit 90; }
fi
r_now
echo "$NOW" >"$DIR/born"
r_start "$DIR"
r_tries=0
while ! [ -s "$DIR/pid" ]; do
    r_nap 0.01
    r_tries=$((r_tries + 1))
    if [ $r_tries -gt 500 ] || [ -s "$DIR/exit" ]; then
        [ -s "$DIR/pid" ] && break
        echo "!start $(tail -c 500 "$DIR/log" | tr '\n' ' ')"
        exit 90
    fi
done
r_report
