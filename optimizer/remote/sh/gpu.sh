# GPUs, then "--", then their compute processes; nothing where there is no nvidia-smi or no driver. Arguments: fields of
# GPUs, fields of processes.
BASE=${TMPDIR:-/tmp}
r_smi "--query-gpu=$1" --format=csv,noheader,nounits
case $? in
0) ;;
124) echo '!smi'; exit 90 ;;
*) exit 0 ;;
esac
echo --
r_smi "--query-compute-apps=$2" --format=csv,noheader,nounits
exit 0
