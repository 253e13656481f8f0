# Facts about the host, one "key value" a line; nothing is changed but the run directory made. Arguments: base, port
# (0: none), then paths to look for.
r_base "$1"
echo "user $(id -un 2>/dev/null || id -u) $(id -u)"
echo "home $HOME"
echo "kernel $(uname -srm 2>/dev/null)"
echo "epoch $(date +%s)"
echo "shell ${SHELL:-?}"
echo "cpus $(grep -c ^processor /proc/cpuinfo 2>/dev/null)"
echo "load $(cut -d' ' -f1 /proc/loadavg 2>/dev/null)"
sed -n 's/^MemAvailable: *\([0-9]*\) kB/mem_kib \1/p' /proc/meminfo 2>/dev/null
for r_t in setsid flock sed grep tail head cut tr wc df find sort mv sleep date readlink mkdir nvidia-smi systemctl; do
    command -v $r_t >/dev/null 2>&1 && echo "tool $r_t"
done
sleep 0.01 2>/dev/null && echo 'tool fractional-sleep'
[ -r /proc/self/environ ] && [ -r /proc/self/stat ] && echo 'proc yes'
[ -r /proc/net/tcp ] && echo 'nettcp yes'
[ -r /proc/1/stat ] || echo 'hidepid yes'
if r_why=$( (umask 077 && mkdir -p "$BASE/runs" && echo probe >"$BASE/.probe") 2>&1); then
    echo "rundir ok $BASE"
else
    echo "rundir no $BASE: $(echo "$r_why" | tail -n 1)"
fi
rm -f "$BASE/.probe"
r_free() { df -Pk "$1" 2>/dev/null | sed -n '2s/^.*[0-9] \{1,\}\([0-9]\{1,\}\) \{1,\}[0-9]*% .*$/\1/p'; }
echo "disk_kib $(r_free "$BASE")"
echo "shm_kib $(r_free /dev/shm)"
r_segments=0
for r_f in /dev/shm/nccl-* /dev/shm/psm_* /dev/shm/torch_* /dev/shm/sem.mp-*; do [ -e "$r_f" ] && r_segments=$((r_segments + 1)); done
echo "shm_segments $r_segments"
echo "nofile $(ulimit -H -n)"
[ -s "$BASE/fence" ] && echo "fence $(cat "$BASE/fence")"
[ -s "$BASE/guard/token" ] && echo 'guard armed'
r_guard_alive "$BASE/guard" && echo 'guard alive'
[ -s "$BASE/guard/fired" ] && echo "guard fired $(cat "$BASE/guard/fired")"
for r_each in $(r_alive_ids); do echo "run $r_each $(r_kind "$r_each")"; done
if [ "$2" != 0 ]; then
    r_listen "$2"
    for r_l in $LISTEN; do
        printf 'listener '
        r_describe "${r_l%:*}" "${r_l#*:}"
    done
fi
if [ -d /run/systemd/system ]; then
    echo 'systemd yes'
    r_kill=$(loginctl show-user "$(id -un)" -p Linger --value 2>/dev/null)
    echo "linger ${r_kill:-?}"
    grep -qs '^KillUserProcesses=yes' /etc/systemd/logind.conf /etc/systemd/logind.conf.d/*.conf && echo 'killuser yes'
fi
r_driver=$(r_smi --query-gpu=driver_version --format=csv,noheader)
r_smi_status=$?
case $r_smi_status in
0) echo "driver $(echo "$r_driver" | head -n 1 | cut -c 1-200)" ;;
127) ;;
124) echo 'smi does not answer' ;;
*) echo "smi $(echo "$r_driver" | tr '\n' ' ' | cut -c 1-200)" ;;
esac
r_scope
[ -n "$SCOPE" ] && echo "scope $SCOPE"
shift 2
for r_path; do
    case $r_path in
    '~/'*) r_real=$HOME/${r_path#??} ;;
    *) r_real=$r_path ;;
    esac
    if [ -r "$r_real" ]; then echo "path ok $r_path"; else echo "path no $r_path"; fi
done
[ $r_smi_status = 0 ] && for r_p in $(r_smi --query-compute-apps=pid --format=csv,noheader); do
    case $r_p in *[!0-9]*) continue ;; esac
    printf 'gpuproc '
    r_describe "$r_p"
done
exit 0
