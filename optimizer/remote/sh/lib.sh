# Functions of every script that Ratchet runs on a host. POSIX sh only; tested with dash, bash and BusyBox.
# What counts as ours: the run id in a process's environment, the run's own cgroup, the session that the launcher
# opened, processes that were seen as ours before, and (when stopping) descendants and writers of the run's log. A pid
# is always paired with its start time, and a run with the boot that it was started in, so a number that was given out
# again is never signalled.

r_nap() { sleep "$1" 2>/dev/null || sleep 1; }

# Whole hundredths of a second since boot: never stepped by NTP.
r_now() {
    read -r r_up r_idle </proc/uptime
    r_int=${r_up%.*} r_frac=${r_up#*.}
    r_frac=${r_frac#0}
    NOW=$((r_int * 100 + ${r_frac:-0}))
}

# Write a small file whole or not at all.
r_put() {
    { printf '%s\n' "$2" >"$1.$$" && mv "$1.$$" "$1"; } 2>/dev/null && return 0
    rm -f "$1.$$"
    return 1
}

# The same for a short line. On a full disk it takes the place of the old one, which is as long.
r_put_line() {
    r_padded=$(printf '%-60s' "$2")
    r_put "$1" "$r_padded" || { [ -s "$1" ] && printf '%s\n' "$r_padded" 1<>"$1"; } 2>/dev/null
}

# Set r_said to a new file that has room for what a command says.
r_scratch() {
    for r_place in "${BASE:-/nowhere}" "${TMPDIR:-/tmp}" /dev/shm; do
        r_said=$(mktemp "$r_place/said.XXXXXX" 2>/dev/null) || continue
        { printf '%8192s' '' >"$r_said"; } 2>/dev/null && return 0
        rm -f "$r_said"
    done
    return 1
}

# Run a command for at most $1 tenths of a second and print what it says; status 124 when it does not end. One that
# hangs in a driver is left behind, as SIGKILL does not end it either.
r_limited() {
    r_left=$1
    shift
    r_scratch || { "$@"; return; }
    "$@" </dev/null >"$r_said" 2>&1 9>&- &
    r_job=$!
    r_pause=0.02
    while r_stat "$r_job"; do
        if [ "$r_left" -le 0 ]; then
            kill -KILL "$r_job" 2>/dev/null
            rm -f "$r_said"
            return 124
        fi
        r_nap $r_pause
        [ $r_pause = 0.1 ] && r_left=$((r_left - 1))
        r_pause=0.1
    done
    wait "$r_job"
    r_job=$?
    cat "$r_said"
    rm -f "$r_said"
    return $r_job
}

# nvidia-smi that cannot hang a script: status 127 where there is none, 124 when it does not answer.
r_smi() {
    command -v nvidia-smi >/dev/null 2>&1 || return 127
    r_limited 150 nvidia-smi "$@"
}

# BOOT names this boot of this host or container: pids and start times mean nothing in another one.
r_boot() {
    BOOT=-
    { read -r BOOT </proc/sys/kernel/random/boot_id; } 2>/dev/null
    r_stat 1 && BOOT=$BOOT.$S_START
    return 0
}

# Start a command in a session of its own, its output appended to file $1, and return at once. The second setsid finds
# itself the leader of a group and forks. An "&" would do that too, but it makes the command, and every server that it
# starts, ignore SIGINT and SIGQUIT.
r_detach() {
    r_out=$1
    shift
    setsid setsid "$@" </dev/null >>"$r_out" 2>&1 9>&-
}

# Set SCOPE to the manager (--system, --user) that gives this user a cgroup for a server; empty where none does. A
# user's manager without lingering would end the server when the login ends.
r_scope() {
    SCOPE=''
    command -v systemd-run >/dev/null 2>&1 || return 0
    if [ "$(id -u)" = 0 ]; then
        r_manager=--system
    else
        [ "$(r_limited 30 loginctl show-user "$(id -un)" -p Linger --value)" = yes ] || return 0
        r_manager=--user
        export XDG_RUNTIME_DIR="${XDG_RUNTIME_DIR:-/run/user/$(id -u)}"
    fi
    r_limited 50 systemd-run $r_manager --scope --quiet --collect -- true >/dev/null && SCOPE=$r_manager
    return 0
}

# Whether unit $1 is a container, ENGINE:NAME. Names of systemd's units may have colons as well.
r_is_container() {
    case $1 in docker:* | podman:* | nerdctl:*) return 0 ;; esac
    return 1
}

# Say $1 (start, stop, what else its manager knows) of unit $2: of systemd, of the login user's own manager (user:), or
# a container.
r_unit() {
    if r_is_container "$2"; then
        "${2%%:*}" "$1" "${2#*:}" || sudo -n "${2%%:*}" "$1" "${2#*:}"
    elif [ "${2#user:}" != "$2" ]; then
        XDG_RUNTIME_DIR="${XDG_RUNTIME_DIR:-/run/user/$(id -u)}" systemctl --user "$1" "${2#user:}"
    else
        # As plain as a rule for sudo would have it.
        systemctl "$1" "$2" || sudo -n systemctl "$1" "$2"
    fi 2>&1 9>&-
}

# Start $1/launch.sh in a session of its own, and in a scope of its own where systemd gives one. Files of a server are
# its login's (r_umask), not as private as ours.
r_start() {
    r_boot
    r_scope
    echo "$BOOT" >"$1/boot"
    if [ -n "$SCOPE" ]; then
        r_own="ratchet-${1##*/}-$$.scope"
        echo "$SCOPE $r_own" >"$1/scope"
        (umask "${r_umask:-022}" && r_detach "$1/log" systemd-run "$SCOPE" --scope --quiet --collect "--unit=$r_own" -- \
            /bin/sh "$1/launch.sh" "$1")
        r_tries=0
        while [ $r_tries -lt 100 ]; do
            [ -s "$1/leader" ] && return 0
            r_nap 0.1
            r_tries=$((r_tries + 1))
        done
        rm -f "$1/scope"
    fi
    (umask "${r_umask:-022}" && r_detach "$1/log" /bin/sh "$1/launch.sh" "$1")
}

# Set BASE from the path given; a leading ~ is the home directory.
r_base() {
    case $1 in
    '~') BASE=$HOME ;;
    '~/'*) BASE=$HOME/${1#??} ;;
    /*) BASE=$1 ;;
    *) BASE=$HOME/$1 ;;
    esac
}

r_make_base() {
    r_umask=$(umask)
    umask 077
    if ! mkdir -p "$BASE/runs" "$BASE/guard" 2>/dev/null || ! [ -w "$BASE" ]; then
        echo "!rundir $BASE"
        exit 90
    fi
}

r_has_room() {
    { printf '%8192s' '' >"$BASE/runs/.probe.$$"; } 2>/dev/null
    r_room=$?
    rm -f "$BASE/runs/.probe.$$"
    return $r_room
}

# Room for home on a full disk: what the guard's arming set aside, then the logs of servers that have ended.
r_make_room() {
    for r_f in "$BASE"/runs/.reserve.*; do
        r_has_room && return 0
        rm -f "$r_f"
    done
    r_has_room && return 0
    for r_f in "$BASE"/runs/*/over; do
        [ -e "$r_f" ] && : >"${r_f%/over}/log"
    done
    r_has_room
}

# Take the host's lock or end with !busy after $1 hundredths of a second. Released when the script ends.
r_lock() {
    r_now
    r_until=$((NOW + $1))
    if command -v flock >/dev/null 2>&1; then
        exec 9>>"$BASE/lock"
        while ! flock -n 9; do
            r_lock_wait || return 1
        done
    else
        while ! mkdir "$BASE/lock.d" 2>/dev/null; do
            r_lock_stale && continue
            r_lock_wait || return 1
        done
        r_stat $$
        echo "$$ $S_START" >"$BASE/lock.d/owner"
        trap 'rm -rf "$BASE/lock.d"' EXIT
        trap 'exit 143' TERM HUP INT
    fi
}

r_unlock() {
    exec 9>&-
    [ -d "$BASE/lock.d" ] && read -r r_p r_s <"$BASE/lock.d/owner" && [ "$r_p" = $$ ] && rm -rf "$BASE/lock.d"
    trap - EXIT
}

r_lock_wait() {
    r_nap 0.05
    r_now
    [ "$NOW" -lt "$r_until" ] && return 0
    return 1
}

# A directory lock outlives a killed owner: it is broken when its owner is gone (or never signed within 2 s).
r_lock_stale() {
    if read -r r_p r_s 2>/dev/null <"$BASE/lock.d/owner"; then
        r_stat "$r_p" && [ "$S_START" = "$r_s" ] && return 1
    else
        r_nap 2
        [ -s "$BASE/lock.d/owner" ] && return 1
    fi
    mv "$BASE/lock.d" "$BASE/lock.stale.$$" 2>/dev/null && rm -rf "$BASE/lock.stale.$$"
    return 0
}

# Refuse a lower fence than the host has seen, else remember this one; fails when the disk has no room for it. "-" is a
# person who takes the host back.
r_fence() {
    [ "$1" = - ] && return 0
    r_seen=0
    [ -s "$BASE/fence" ] && read -r r_seen <"$BASE/fence"
    if [ "$1" -lt "${r_seen:-0}" ]; then
        echo "!fence $r_seen"
        exit 90
    fi
    if [ "$1" -gt "${r_seen:-0}" ]; then
        r_put_line "$BASE/fence" "$1" || return 1
    fi
    return 0
}

# After the guard has acted, nothing is started or stopped until somebody armed a guard again.
r_not_fired() {
    [ -e "$BASE/guard/fired" ] || return 0
    echo "!fired $(head -n 1 "$BASE/guard/fired")"
    exit 90
}

# Pids whose environment holds the text $1. GNU grep looks beyond NUL bytes, BusyBox's does not: then `strings` does it
# in one process, else every process is looked at by itself.
r_env_pids() {
    if [ -z "${r_grep:-}" ]; then
        if [ "$(printf 'a\0b' | grep -cF b)" = 1 ]; then
            r_grep=nul
        elif printf 'abcd' | strings -n 2 >/dev/null 2>&1; then
            r_grep=strings
        else
            r_grep=each
        fi
    fi
    case $r_grep in
    nul) grep -lF -- "$1" /proc/[0-9]*/environ 2>/dev/null | sed 's/[^0-9]//g' ;;
    strings) strings -f /proc/[0-9]*/environ 2>/dev/null | grep -F -- "$1" | sed -n 's|^/proc/\([0-9]*\)/environ:.*|\1|p' ;;
    each)
        for r_f in /proc/[0-9]*/environ; do
            tr '\0' '\n' 2>/dev/null <"$r_f" | grep -qF -- "$1" && echo "$r_f" | sed 's/[^0-9]//g'
        done
        ;;
    esac
}

# Read /proc/PID/stat; fails when the process is gone or a zombie.
r_stat() {
    { IFS= read -r r_line <"/proc/$1/stat"; } 2>/dev/null || return 1
    case $r_line in
    *') '*) ;;
    *) r_line=$(cat "/proc/$1/stat" 2>/dev/null) || return 1 ;;
    esac
    r_line=${r_line##*') '}
    # shellcheck disable=SC2086
    set -- $r_line
    [ $# -ge 20 ] || return 1
    S_STATE=$1 S_PPID=$2 S_PGID=$3 S_SID=$4 S_CPU=$((${12} + ${13})) S_START=${20}
    case $S_STATE in Z | X | x) return 1 ;; esac
    return 0
}

# What the sed command $1 makes of the stat lines of all processes. Never sed alone: it stops at the first process that
# ends while it is read, and sees nothing of the others. Never a here-document for such a list: some shells keep it in a
# file, and see nothing of it where /tmp is full.
r_table() {
    cat /proc/[0-9]*/stat 2>/dev/null | sed -n "$1"
}

# Candidates are raw numbers; MEMBERS gets "pid:start" of those that live, each once. GHOSTS tells that one was gone
# before it could be looked at: a tree may fork faster than it is read, so that is no proof of its end.
r_add() {
    for r_pid; do
        case " $MEMBERS " in *" $r_pid:"*) continue ;; esac
        [ "$r_pid" != $$ ] || continue
        if r_stat "$r_pid"; then
            MEMBERS="$MEMBERS $r_pid:$S_START" CPU=$((CPU + S_CPU))
        elif [ ! -d "/proc/$r_pid" ]; then
            GHOSTS=1
        fi
    done
    return 0
}

r_add_known() {
    for r_known; do
        r_pid=${r_known%:*}
        case " $MEMBERS " in *" $r_pid:"*) continue ;; esac
        r_stat "$r_pid" && [ "$S_START" = "${r_known#*:}" ] && MEMBERS="$MEMBERS $r_known" && CPU=$((CPU + S_CPU))
    done
    return 0
}

# The living processes of run $1, by environment, cgroup, session and memory of earlier looks.
r_members() {
    MEMBERS='' CPU=0 GHOSTS=0 GROUP='' r_dir=$BASE/runs/$1
    # shellcheck disable=SC2046
    r_add $(r_env_pids "RATCHET_RUN_ID=$1")
    if [ -s "$r_dir/scope" ]; then
        # shellcheck disable=SC2046
        r_add $(grep -lF "/ratchet-$1-" /proc/[0-9]*/cgroup 2>/dev/null | sed 's/[^0-9]//g')
    fi
    [ -n "${BOOT:-}" ] || r_boot
    r_then=''
    [ -s "$r_dir/boot" ] && read -r r_then <"$r_dir/boot"
    [ "$r_then" = "$BOOT" ] || return 0
    r_leader='' r_lstart='' r_lend=''
    [ -s "$r_dir/leader" ] && read -r r_leader r_lstart r_lend <"$r_dir/leader"
    if [ -n "$r_leader" ]; then
        r_add_session
    fi
    if [ -s "$r_dir/members" ]; then
        # shellcheck disable=SC2046
        r_add_known $(cat "$r_dir/members")
    fi
}

# The session that the launcher opened. Its number is ours while no new leader has it; after the leader has ended, who
# is younger than that end may belong to a later session of the same number.
r_add_session() {
    r_stat "$r_leader" && [ "$S_START" != "$r_lstart" ] && return 0
    r_seen=0
    for r_row in $(r_table "s/^\([0-9]*\) .*) \([A-Za-z]\) [0-9]* \([0-9]*\) $r_leader \([0-9-]* \)\{15\}\([0-9]*\) .*/\1:\2:\3:\5/p"); do
        r_seen=1
        r_p=${r_row%%:*}
        r_row=${r_row#*:}
        r_state=${r_row%%:*}
        r_row=${r_row#*:}
        r_group=${r_row%:*}
        r_began=${r_row#*:}
        [ "$r_began" -le "${r_lend:-$r_began}" ] || continue
        [ "$r_group" = "$r_leader" ] && GROUP=$r_leader
        case $r_state in Z | X | x) continue ;; esac
        r_add "$r_p"
    done
    # The kernel knows the group although nobody of it was there to be read.
    if [ $r_seen = 0 ] && r_there "-$r_leader"; then
        GHOSTS=1 GROUP=$r_leader
    fi
    return 0
}

# Ask the kernel for process $1, or group -$1, which /proc may not show. A "--" before it means something else, or an
# error, in dash and BusyBox.
r_there() {
    r_why=$(LC_ALL=C kill -0 "$1" 2>&1) && return 0
    case $r_why in *ermitted*) return 0 ;; esac
    return 1
}

r_remember() {
    [ -n "$MEMBERS" ] || return 0
    r_old=''
    [ -s "$BASE/runs/$1/members" ] && read -r r_old <"$BASE/runs/$1/members"
    [ "$r_old" = "${MEMBERS# }" ] && return 0
    echo "${MEMBERS# }" >"$BASE/runs/$1/members.$$" && mv "$BASE/runs/$1/members.$$" "$BASE/runs/$1/members"
}

# Everything that descends from MEMBERS, whatever it did to its environment or session.
r_add_descendants() {
    [ -n "$MEMBERS" ] || return 0
    r_rows=$(r_table 's/^\([0-9]*\) .*) [A-Za-z] \([0-9]*\) .*/\1:\2/p')
    r_grown=1
    while [ "$r_grown" = 1 ]; do
        r_grown=0
        for r_row in $r_rows; do
            r_p=${r_row%:*}
            r_parent=${r_row#*:}
            case " $MEMBERS " in *" $r_p:"*) continue ;; esac
            case " $MEMBERS " in
            *" $r_parent:"*)
                r_before=$MEMBERS
                r_add "$r_p"
                [ "$MEMBERS" = "$r_before" ] || r_grown=1
                ;;
            esac
        done
    done
}

# Whoever still writes to the run's log as its standard output or error.
r_add_log_writers() {
    [ -e "$BASE/runs/$1/log" ] || return 0
    # shellcheck disable=SC2046
    r_add $(ls -ld /proc/[0-9]*/fd/[12] 2>/dev/null | grep -F -- "-> $(cd "$BASE/runs/$1" && pwd -P)/log" |
        sed -n 's|.* /proc/\([0-9]*\)/fd/[12] -> .*|\1|p')
}

# Sockets that listen on port $1: "inode:uid" a line.
r_inodes() {
    r_hex=$(printf '%04X' "$1")
    sed -n "s/^ *[0-9]*: [0-9A-F]*:$r_hex [0-9A-F:]* 0A [0-9A-F:]* [0-9A-F:]* [0-9A-F]* *\([0-9]*\) *[0-9]* \([0-9]*\) .*/\2:\1/p" \
        /proc/net/tcp /proc/net/tcp6 2>/dev/null
}

# Pids (of "$@" or of all) that hold socket inode $1.
r_holders() {
    r_inode=$1
    shift
    if [ $# -eq 0 ]; then
        ls -l /proc/[0-9]*/fd 2>/dev/null
    else
        r_list=/proc/self/fd
        for r_p; do r_list="$r_list /proc/$r_p/fd"; done
        # shellcheck disable=SC2086
        ls -l $r_list 2>/dev/null
    fi | sed -n -e '/^\/proc\/[0-9a-z]*\/fd:$/{h;d;}' -e "/socket:\[$r_inode\]\$/{g;s/[^0-9]//gp;}" | sort -u
}

# LISTEN gets the pids that listen on port $1 (members first, then anybody; 0 stands for one we may not see).
r_listen() {
    LISTEN='' r_port=$1
    shift
    for r_socket in $(r_inodes "$r_port"); do
        r_ino=${r_socket%:*}
        r_uid=${r_socket#*:}
        r_who=''
        [ $# -gt 0 ] && r_who=$(r_holders "$r_ino" "$@")
        [ -n "$r_who" ] || r_who=$(r_holders "$r_ino")
        for r_p in ${r_who:-0}; do
            case " $LISTEN " in *" $r_p:"*) ;; *) LISTEN="$LISTEN $r_p:$r_uid" ;; esac
        done
    done
}

# The command line of a process on one line.
r_command() {
    r_cmd=$(tr '\0\n\t' '   ' <"/proc/$1/cmdline" 2>/dev/null | cut -c 1-4000)
    [ -n "$r_cmd" ] || r_cmd=$(tr '\n' ' ' <"/proc/$1/comm" 2>/dev/null)
    printf '%s' "${r_cmd:-?}"
}

r_run_id() {
    tr '\0' '\n' <"/proc/$1/environ" 2>/dev/null | sed -n 's/^RATCHET_RUN_ID=\([A-Za-z0-9-]*\)$/\1/p' | head -n 1
}

# One line about a process: pid start pgid sid uid run-id command.
r_describe() {
    if r_stat "$1"; then
        r_owner=$(sed -n 's/^Uid:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$1/status" 2>/dev/null)
        r_id=$(r_run_id "$1")
        printf '%s %s %s %s %s %s %s\n' "$1" "$S_START" "$S_PGID" "$S_SID" "${r_owner:--1}" "${r_id:--}" "$(r_command "$1")"
    else
        printf '%s 0 0 0 %s - ?\n' "$1" "${2:--1}"
    fi
}

# Ids of all runs of this run directory that have a living process.
r_alive_ids() {
    {
        # shellcheck disable=SC2046
        for r_p in $(r_env_pids RATCHET_RUN_ID=); do r_run_id "$r_p"; done
        for r_f in "$BASE"/runs/*/leader; do
            [ -s "$r_f" ] || continue
            r_d=${r_f%/leader}
            [ -e "$r_d/over" ] || echo "${r_d##*/}"
        done
    } | sort -u | while read -r r_each; do
        [ -d "$BASE/runs/$r_each" ] || continue
        r_members "$r_each"
        # A run without a process is over for good: it is not looked for again.
        if [ -n "$MEMBERS" ] || [ $GHOSTS = 1 ]; then echo "$r_each"; else : >"$BASE/runs/$r_each/over"; fi
    done
}

r_kind() {
    r_k=trial
    [ -s "$BASE/runs/$1/kind" ] && read -r r_k <"$BASE/runs/$1/kind"
    echo "${r_k:-trial}"
}

# Say whether the guard whose folder is $1 runs; sets r_p.
r_guard_alive() {
    r_boot
    [ -s "$1/pid" ] && read -r r_p r_s r_b <"$1/pid" && [ "$r_b" = "$BOOT" ] && r_stat "$r_p" && [ "$S_START" = "$r_s" ]
}

# Kills by the kernel for lack of memory, as counted in file $1 (memory.events, or memory.oom_control of cgroup 1).
r_oom_kills() {
    sed -n 's/^oom_kill \([0-9]*\)$/\1/p' "$1" 2>/dev/null
}

# Print the count above and its file for process $1: of the cgroup that outlives it.
r_oom_mark() {
    r_v2=$(sed -n 's|^0::||p' "/proc/$1/cgroup" 2>/dev/null)
    r_v1=$(sed -n 's|^[0-9]*:memory:||p' "/proc/$1/cgroup" 2>/dev/null)
    case $r_v2 in */ratchet-*) r_v2=${r_v2%/*} ;; esac
    for r_f in "/sys/fs/cgroup/memory$r_v1/memory.oom_control" /sys/fs/cgroup/memory/memory.oom_control \
        "/sys/fs/cgroup$r_v2/memory.events" /sys/fs/cgroup/memory.events; do
        r_count=$(r_oom_kills "$r_f")
        [ -n "$r_count" ] && echo "$r_count $r_f" && return 0
    done
    return 1
}

r_signal() {
    r_sig=$1
    shift
    for r_known; do
        r_stat "${r_known%:*}" && [ "$S_START" = "${r_known#*:}" ] || continue
        kill "-$r_sig" "${r_known%:*}" 2>/dev/null
    done
}

# SIGKILL to the run's process group and cgroup at once: a tree that forks faster than /proc is read outruns signals to
# single pids.
r_kill_at_once() {
    [ -n "${GROUP:-}" ] && kill -KILL "-$GROUP" 2>/dev/null
    if [ -n "${r_dir:-}" ] && [ -s "$r_dir/scope" ]; then
        read -r r_manager r_own <"$r_dir/scope"
        r_limited 50 systemctl "$r_manager" kill --signal=KILL "$r_own" >/dev/null
    fi
    return 0
}

# Shared memory that run $1 made and that nobody holds any more fills /dev/shm until every start fails; a lock that its
# compilers left behind in a JIT cache hangs the next start. Who held such a file has it open.
r_clean() {
    r_dir=$BASE/runs/$1 r_open=''
    {
        for r_f in /dev/shm/nccl-* /dev/shm/psm_* /dev/shm/torch_* /dev/shm/sem.mp-*; do
            [ -f "$r_f" ] && [ -O "$r_f" ] && find "$r_f" -newer "$r_dir/kind" 2>/dev/null
        done
        [ -s "$r_dir/caches" ] && while IFS= read -r r_cache; do
            [ -d "$r_cache" ] && find "$r_cache" -maxdepth 6 -type f \( -name lock -o -name '*.lock' -o -name 'lock_*' \) \
                -user "$(id -u)" -newer "$r_dir/kind" 2>/dev/null
        done <"$r_dir/caches"
    } | while IFS= read -r r_f; do
        [ -n "$r_open" ] || r_open=$(ls -l /proc/[0-9]*/fd 2>/dev/null)
        case $r_open in *"-> $r_f"*) continue ;; esac
        # A mapping is told by its inode: whoever made a semaphore has it mapped under the name that it was born with.
        r_inode=$(ls -i "$r_f" 2>/dev/null) && r_inode=${r_inode#"${r_inode%%[0-9]*}"}
        grep -q -- " ${r_inode%% *} *${r_f%/*}/" /proc/[0-9]*/maps 2>/dev/null || rm -f "$r_f"
    done
}

# Stop everything that $1 (a function filling MEMBERS) finds: TERM, TERM again, KILL; $2/$3 hundredths of a second
# for TERM and for KILL. Sets SIGNALLED, KILLED; fails when something is left in MEMBERS.
r_stop() {
    SIGNALLED='' KILLED=0 r_main=$4
    r_now
    r_first=$NOW r_term_end=$((NOW + $2)) r_again=$((NOW + $2 / 3)) r_termed='' r_nap_s=0.03 r_orphans=0 r_ended=0
    while :; do
        $1
        if [ -z "$MEMBERS" ] && [ $GHOSTS = 0 ]; then
            # Where only the dead of a group are seen, one that forks on may be missed between them: end it, look again.
            [ -n "${GROUP:-}" ] && [ $r_ended = 0 ] || return 0
            r_ended=1
            kill -KILL "-$GROUP" 2>/dev/null
            continue
        fi
        r_new=''
        for r_m in $MEMBERS; do
            case " $SIGNALLED " in *" $r_m "*) ;; *) SIGNALLED="$SIGNALLED $r_m" ;; esac
            case " $r_termed " in *" $r_m "*) ;; *) r_new="$r_new $r_m" ;; esac
        done
        r_now
        # shellcheck disable=SC2086
        if [ $KILLED = 0 ]; then
            r_signal TERM $r_new
            r_termed="$r_termed $r_new"
            [ "$NOW" -ge "$r_again" ] && r_signal TERM $MEMBERS && r_again=$((r_term_end + 1))
            # Workers whose server is gone already get a short time only.
            if [ $r_orphans = 0 ] && [ -n "$r_main" ] && ! r_stat "$r_main"; then
                r_orphans=1
                [ $((NOW + 300)) -lt $r_term_end ] && r_term_end=$((NOW + 300))
            fi
            if [ "$NOW" -ge "$r_term_end" ]; then
                KILLED=1
                r_kill_end=$((NOW + $3))
            fi
        fi
        if [ $KILLED = 1 ]; then
            r_kill_at_once
            r_signal KILL $MEMBERS
            [ "$NOW" -ge "$r_kill_end" ] && return 1
        fi
        r_nap $r_nap_s
        [ $((NOW - r_first)) -gt 100 ] && r_nap_s=0.1
    done
}
