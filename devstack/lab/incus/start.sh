# Process 1 of the server's namespaces (mount, PID, network). launch in server_linux.go starts this script after
# isolated/enter.sh, with:
#   ROOT          the server's root folder in the cache; it is mounted read-only
#   DATA          the server's data folder
#   CABLE         name of the machine's veth interface to the instances' network
#   HOST_ADDRESS  address of the veth interface
#   descriptor 3  the machine's network namespace

join_groups # liblxc makes the containers' cgroups beside process 1's cgroups: all are in the server's cgroups

mount --make-rprivate /
mount --bind "$ROOT" "$ROOT"
mount -o remount,bind,ro "$ROOT"
cd "$ROOT"
fill_root
mount -t tmpfs -o mode=0755 tmpfs var/cache
mkdir -p "$DATA/lib" "$DATA/log"
mount --bind "$DATA/lib" var/lib/incus
mount --bind "$DATA/log" var/log/incus
enter_root

# The kernel removes both ends of the veth pair together with this network namespace.
ip link set lo up
ip link add uplink type veth peer name "$CABLE" netns /proc/self/fd/3
ip link set uplink up
nsenter --net=/proc/self/fd/3 ip addr add "$HOST_ADDRESS" dev "$CABLE"
nsenter --net=/proc/self/fd/3 ip link set "$CABLE" up
exec 3<&-

run_server incusd --group root
