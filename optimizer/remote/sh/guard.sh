# The dead man's switch. Arguments: base, token. Runs in a session of its own on the host; needs nothing of Ratchet.
# It looks at its lease once a second. When the lease was not renewed for its grace, or the deadline has passed, it
# takes the same lock as launches, stops what carries our run ids, starts the original server and writes what it did.
BASE=$1 TOKEN=$2
G=$BASE/guard
umask 077
cd / || exit 1
r_boot
r_stat $$
r_put_line "$G/pid" "$$ $S_START $BOOT"

g_clean() { printf '%s' "$1" | tr -d '"\\' | tr '\n\t\r' '   ' | cut -c 1-400; }
g_log() {
    r_now
    printf '{"at": "%s", "uptime_s": %s, "event": "%s", "detail": "%s"}\n' "$(date -u +%Y-%m-%dT%H:%M:%SZ)" \
        "$((NOW / 100))" "$1" "$(g_clean "$2")" >>"$G/log"
}

# Set WHY when the switch must act.
g_due() {
    WHY=''
    read -r g_renewed g_grace g_end <"$G/lease" && [ -n "$g_end" ] || return 1
    r_now
    if [ "$NOW" -gt $((g_renewed + g_grace)) ]; then
        WHY="no sign of life for $(((NOW - g_renewed) / 100)) s"
    elif [ "$g_end" -gt 0 ] && [ "$NOW" -gt "$g_end" ]; then
        WHY='the deadline passed'
    else
        return 1
    fi
    return 0
}

g_mine() {
    read -r g_token <"$G/token" 2>/dev/null && [ "$g_token" = "$TOKEN" ]
}

g_members() {
    r_members "$g_id"
    r_add_descendants
    r_add_log_writers "$g_id"
}

g_stop_trials() {
    SIGNALLED_ALL=''
    for g_id in $(r_alive_ids); do
        [ "$(r_kind "$g_id")" = home ] && continue
        g_main=''
        [ -s "$BASE/runs/$g_id/pid" ] && read -r g_main g_x <"$BASE/runs/$g_id/pid"
        if r_stop g_members 500 1000 "$g_main"; then
            : >"$BASE/runs/$g_id/over"
            r_clean "$g_id"
            g_log stopped "run $g_id, pids$SIGNALLED"
        else
            g_log stuck "run $g_id, pids$MEMBERS did not end after SIGKILL"
        fi
        SIGNALLED_ALL="$SIGNALLED_ALL $SIGNALLED"
    done
}

# GPU memory of stopped processes is released late; a start before that fails.
g_wait_gpu() {
    g_tries=0
    while [ $g_tries -lt 60 ]; do
        g_busy=0
        for g_p in $(r_smi --query-compute-apps=pid --format=csv,noheader); do
            case " $SIGNALLED_ALL " in *" $g_p:"*) g_busy=1 ;; esac
        done
        [ $g_busy = 0 ] && return 0
        r_nap 1
        g_tries=$((g_tries + 1))
    done
}

g_home_alive() {
    for g_id in $(r_alive_ids); do
        [ "$(r_kind "$g_id")" = home ] && return 0
    done
    return 1
}

# Set WHY when home has ended.
g_home_dead() {
    if [ "$g_unit" = - ]; then
        [ -s "$BASE/runs/$g_run/exit" ] &&
            WHY="status $(cat "$BASE/runs/$g_run/exit"), log: $(tail -c 300 "$BASE/runs/$g_run/log")"
    elif r_is_container "$g_unit"; then
        r_unit inspect "$g_unit" | grep -q '"Running": false' && WHY="container $g_unit ended"
    else
        r_unit is-failed "$g_unit" >/dev/null && WHY="unit $g_unit failed"
    fi
}

g_start_home() {
    read -r g_run g_port g_unit r_umask <"$G/conf"
    if [ "$g_unit" != - ]; then
        r_unit start "$g_unit" && g_log home_started "unit $g_unit" || g_log home_failed "unit $g_unit did not start"
        return 0
    fi
    r_make_room || g_log no_room "the disk of $BASE is full"
    DIR=$BASE/runs/$g_run
    mkdir -p "$DIR"
    rm -f "$DIR/pid" "$DIR/exit" "$DIR/over" "$DIR/members" "$DIR/leader" "$DIR/scope"
    # Links need no room, but not every disk knows them.
    for g_f in kind meta home.sh; do
        ln -f "$G/$g_f" "$DIR/$g_f" 2>/dev/null || cp "$G/$g_f" "$DIR/$g_f"
    done
    mv "$DIR/home.sh" "$DIR/launch.sh"
    touch "$DIR/kind"
    r_start "$DIR"
    g_log home_started "run $g_run"
}

g_served() {
    r_listen "$g_port"
    [ -n "$LISTEN" ] || return 1
    g_log home_serving "port $g_port is served by pid $(echo "${LISTEN# }" | cut -d: -f1), attempt $g_attempt"
}

# Start home and wait until its port is served; try again when it dies (memory may come back late). The lock is free
# while it loads.
g_bring_home() {
    read -r g_run g_port g_unit r_umask <"$G/conf"
    g_attempt=1
    g_served && return 0
    g_home_alive || g_start_home
    r_unlock
    g_wait=0
    while [ $g_wait -lt 7200 ] && g_mine; do
        r_nap 0.5
        g_wait=$((g_wait + 1))
        g_served && return 0
        if g_home_dead; then
            g_log home_died "$WHY"
            [ $g_attempt -ge 4 ] && break
            r_nap $((g_attempt * g_attempt * 3))
            g_attempt=$((g_attempt + 1))
            r_lock 12000 && g_mine || return 1
            g_start_home
            r_unlock
        fi
    done
    g_log home_failed "not serving on port $g_port"
}

g_fire() {
    r_lock 12000 || { g_log waiting 'the lock is held by another process'; return 1; }
    # Between the look and the lock somebody may have renewed, or a launch may have ended.
    if ! g_mine || ! g_due; then
        r_unlock
        return 1
    fi
    r_make_room
    g_log fired "$WHY"
    echo "$(date -u +%Y-%m-%dT%H:%M:%SZ) $WHY" >"$G/fired"
    g_stop_trials
    g_wait_gpu
    g_bring_home
    r_unlock
    g_log done ''
    return 0
}

g_log armed "token $TOKEN"
while g_mine; do
    g_due && g_fire && break
    r_nap 1
done
exit 0
