# Start or stop home's systemd unit. Arguments: base, fence, lock wait, start or stop, --system or --user, unit.
r_base "$1"
r_make_base
r_lock "$3" || { echo '!busy'; exit 90; }
r_fence "$2"
[ "$4" = start ] || [ "$2" = - ] || r_not_fired
r_said=$(systemctl "$5" "$4" -- "$6" 2>&1 9>&-) && exit 0
[ "$5" = --system ] && r_said=$(sudo -n systemctl "$5" "$4" -- "$6" 2>&1 9>&-) && exit 0
echo "$r_said" >&2
exit 1
