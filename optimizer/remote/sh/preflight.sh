# Look before a launch. Arguments: base, port.
r_base "$1"
r_make_base
r_listen "$2"
for r_l in $LISTEN; do
    printf 'listener '
    r_describe "${r_l%:*}" "${r_l#*:}"
done
r_free() { df -Pk "$1" 2>/dev/null | sed -n '2s/^.*[0-9] \{1,\}\([0-9]\{1,\}\) \{1,\}[0-9]*% .*$/\1/p'; }
r_kib=$(r_free "$BASE")
[ -n "$r_kib" ] && echo "disk $r_kib"
r_kib=$(r_free /dev/shm)
[ -n "$r_kib" ] && echo "shm $r_kib"
# Run directories without a process are kept for a week, for their logs.
find "$BASE/runs" -mindepth 2 -maxdepth 2 -name over -mtime +7 2>/dev/null | while IFS= read -r r_old; do
    rm -rf "${r_old%/over}"
done
exit 0
