# Process 1 of the server's namespaces (mount, PID, network); launch in server_linux.go starts it behind
# isolated/enter.sh, with:
#   ROOT          the cached root folder of the server, which stays as it is
#   DATA          the server's own folder
#   CABLE         name of the interface that connects the machine with the network of instances
#   HOST_ADDRESS  address of that interface
#   descriptor 3  the network namespace of the machine

join_groups # liblxc makes the groups of containers beside those of process 1, so they are all in our folder

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

# The machine's end of the cable disappears together with this namespace.
ip link set lo up
ip link add uplink type veth peer name "$CABLE" netns /proc/self/fd/3
ip link set uplink up
nsenter --net=/proc/self/fd/3 ip addr add "$HOST_ADDRESS" dev "$CABLE"
nsenter --net=/proc/self/fd/3 ip link set "$CABLE" up
exec 3<&-

run_server incusd --group root
