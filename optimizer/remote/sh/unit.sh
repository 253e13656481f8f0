# Start or stop home's unit or container. Arguments: base, fence, lock wait, start or stop, unit.
r_base "$1"
r_make_base
r_lock "$3" || { echo '!busy'; exit 90; }
r_fence "$2"
[ "$4" = start ] || [ "$2" = - ] || r_not_fired
r_said=$(r_unit "$4" "$5") && exit 0
echo "$r_said" >&2
exit 1
