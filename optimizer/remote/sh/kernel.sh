# What the kernel says about the end of processes, raw. Arguments: base, run id, then pids that were seen of the run.
r_base "$1"
DIR=$BASE/runs/$2
shift 2
echo "born $(cat "$DIR/born" 2>/dev/null)"
echo "pids $(cut -d ' ' -f 1 "$DIR/pid" 2>/dev/null) $(sed 's/:[0-9]*//g' "$DIR/members" 2>/dev/null) $*"
if [ -s "$DIR/oom" ] && read -r r_before r_file <"$DIR/oom"; then
    r_count=$(r_oom_kills "$r_file")
    echo "counted $((${r_count:-$r_before} - r_before))"
fi
{ r_limited 30 dmesg || r_limited 50 journalctl -k -b -o short-monotonic --no-pager -n 20000; } |
    grep -iE 'out of memory|oom-kill:|killed process|Xid|segfault at|general protection|invalid opcode|amdgpu.*(GPU re(set|covery)|page fault|process .* pid )' |
    tail -n 400
exit 0
