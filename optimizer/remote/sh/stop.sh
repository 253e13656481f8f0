# Stop one run, or the processes given. Arguments: base, run id or "-", fence, lock wait, TERM wait, KILL wait
# (1/100 s), port, main pid, 1 when it may be done after the guard has acted, then "pid:start" of the processes when there is no run id.
r_base "$1"
r_make_base
r_lock "$4" || { echo '!busy'; exit 90; }
r_fence "$3"
[ "$9" = 1 ] || [ "$3" = - ] || r_not_fired
r_id=$2 r_t=$5 r_k=$6 r_p0=$7 r_mainpid=$8
shift 9
GIVEN="$*"
r_found_run() {
    r_members "$r_id"
    r_add_descendants
    r_add_log_writers "$r_id"
}
r_found_given() {
    MEMBERS='' CPU=0 GHOSTS=0 GROUP='' r_dir=''
    # shellcheck disable=SC2086
    r_add_known $GIVEN $SIGNALLED
    r_add_descendants
}
SIGNALLED=''
if [ "$r_id" = - ]; then r_find=r_found_given; else r_find=r_found_run; fi
r_stop $r_find "$r_t" "$r_k" "$r_mainpid"
r_left=$?
printf 'signalled'
for r_m in $SIGNALLED; do printf ' %s' "${r_m%:*}"; done
printf '\nkilled %s\n' "$KILLED"
if [ $r_left != 0 ]; then
    [ -n "$MEMBERS" ] || echo 'left ? processes of its group that we may not see, or that fork faster than they can be listed'
    for r_m in $MEMBERS; do
        r_stat "${r_m%:*}" && printf 'left %s %s %s\n' "${r_m%:*}" "$S_STATE" "$(r_command "${r_m%:*}")"
    done
elif [ "$r_id" != - ] && [ -d "$BASE/runs/$r_id" ]; then
    : >"$BASE/runs/$r_id/over"
    r_clean "$r_id"
fi
r_tries=0
while r_listen "$r_p0"; [ -n "$LISTEN" ] && [ $r_left = 0 ] && [ $r_tries -lt 20 ]; do
    # Somebody else's server is told at once; a socket without a visible holder may still be going away.
    [ "$LISTEN" = " ${LISTEN# 0:*}" ] && break
    r_nap 0.05
    r_tries=$((r_tries + 1))
done
for r_l in $LISTEN; do
    printf 'port '
    r_describe "${r_l%:*}" "${r_l#*:}"
done
[ "$r_id" != - ] && [ -s "$BASE/runs/$r_id/gpu_before" ] && sed 's/^/gpu /' "$BASE/runs/$r_id/gpu_before"
exit 0
