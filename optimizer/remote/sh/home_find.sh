# Describe the server on a port. Arguments: base, port, pid (0: whoever listens), its start time.
r_base "$1"
r_main=$3
if [ "$3" != 0 ] && { ! r_stat "$3" || [ "$S_START" != "$4" ]; }; then
    r_main=0
fi
r_seen=0
if [ "$r_main" = 0 ]; then
    r_listen "$2"
    for r_l in $LISTEN; do
        r_seen=1
        r_main=${r_l%:*} r_uid=${r_l#*:}
        [ "$r_main" != 0 ] && break
    done
    if [ $r_seen = 0 ]; then
        echo none
        exit 0
    fi
    if [ "$r_main" = 0 ]; then
        echo "hidden $r_uid"
        exit 0
    fi
fi
# The socket may belong to a worker: the server is its topmost ancestor with the same program and session, as far as
# each is a forked, spawned or renamed worker of the next; whoever merely started the server (a notebook) is not it.
r_is_worker() {
    case $(r_command "$1") in "$(r_command "$2")" | *multiprocessing* | *::* | *': worker'*) return 0 ;; esac
    return 1
}
r_exe=$(readlink "/proc/$r_main/exe")
while r_stat "$r_main" && r_s=$S_SID r_up=$S_PPID && [ "$r_up" -gt 1 ] && r_stat "$r_up" && [ "$S_SID" = "$r_s" ] &&
    [ "$(readlink "/proc/$r_up/exe")" = "$r_exe" ] && [ -n "$r_exe" ] && r_is_worker "$r_main" "$r_up"; do
    case ${r_exe##*/} in sh | dash | bash | ash | busybox | zsh) break ;; esac
    r_main=$r_up
done
printf 'main '
r_describe "$r_main"
r_id=$(r_run_id "$r_main")
r_ours=-
[ -n "$r_id" ] && [ -d "$BASE/runs/$r_id" ] && r_ours=$(r_kind "$r_id")
printf 'kind %s\n' "$r_ours"
r_uid=$(sed -n 's/^Uid:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$r_main/status")
printf 'user %s\nself %s\n' "$( (getent passwd "$r_uid" || grep "^[^:]*:[^:]*:$r_uid:" /etc/passwd) 2>/dev/null | head -n 1 | cut -d: -f1)" "$(id -u)"
printf 'umask %s\n' "$(sed -n 's/^Umask:[^0-9]*//p' "/proc/$r_main/status")"
printf 'cwd %s\n' "$(readlink "/proc/$r_main/cwd")"
[ "$(readlink "/proc/$r_main/ns/mnt")" = "$(readlink /proc/self/ns/mnt)" ] && echo 'ns same' || echo 'ns other'
printf 'cgroup %s\n' "$(sed -n 's/^.*:\(name=systemd\)\{0,1\}:\(.*\)$/\2/p' "/proc/$r_main/cgroup" 2>/dev/null | grep '\.service' | head -n 1)"
command -v systemctl >/dev/null 2>&1 && [ -d /run/systemd/system ] && echo 'systemd yes'
printf -- '--cmdline--\n'
cat "/proc/$r_main/cmdline" 2>/dev/null
printf -- '\n--environ--\n'
cat "/proc/$r_main/environ" 2>/dev/null
exit 0
