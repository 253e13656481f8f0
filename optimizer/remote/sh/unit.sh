# Start or stop home's systemd unit. Arguments: base, fence, lock wait, start or stop, --system or --user, unit.
r_base "$1"
r_make_base
r_lock "$3" || { echo '!busy'; exit 90; }
r_fence "$2"
[ "$4" = start ] || [ "$2" = - ] || r_not_fired
# As plain as a rule for sudo would have it.
if [ "$5" = --user ]; then
    r_said=$(systemctl --user "$4" "$6" 2>&1 9>&-) && exit 0
else
    r_said=$(systemctl "$4" "$6" 2>&1 9>&-) && exit 0
    r_said=$(sudo -n systemctl "$4" "$6" 2>&1 9>&-) && exit 0
fi
echo "$r_said" >&2
exit 1
