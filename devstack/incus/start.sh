# Process 1 of the server's namespaces (mount, PID, network); launch in server_linux.go starts it with:
#   ROOT              the cached root folder of the server, which stays as it is
#   DATA              the server's own folder
#   GROUPS_OF_SERVER  its folders in the cgroup hierarchies, one a line
#   CABLE             name of the interface that connects the machine with the network of instances
#   HOST_ADDRESS      address of that interface
#   descriptor 3      the network namespace of the machine
# Until pivot_root it runs programs of the machine, then those of ROOT.
set -eu

# liblxc makes the groups of containers beside those of process 1, so they are all in our folder.
printf '%s\n' "$GROUPS_OF_SERVER" | while read -r group; do echo $$ >"$group/cgroup.procs"; done

mount --make-rprivate /
mount --bind "$ROOT" "$ROOT"
mount -o remount,bind,ro "$ROOT"
cd "$ROOT"
mount -t proc proc proc
mount -t sysfs sysfs sys # that of this network namespace
mount --rbind /sys/fs/cgroup sys/fs/cgroup
mount --rbind /dev dev
mount -t tmpfs -o mode=1777 tmpfs dev/shm
mount -t tmpfs -o mode=0755 tmpfs run
mount -t tmpfs -o mode=1777 tmpfs tmp
mount -t tmpfs -o mode=0755 tmpfs var/cache
mkdir -p "$DATA/lib" "$DATA/log"
mount --bind "$DATA/lib" var/lib/incus
mount --bind "$DATA/log" var/log/incus

# Not chroot: in one, the kernel refuses user namespaces.
mkdir run/host
pivot_root . run/host
umount -l /run/host
rmdir /run/host

# The machine's end of the cable disappears together with this namespace.
ip link set lo up
ip link add uplink type veth peer name "$CABLE" netns /proc/self/fd/3
ip link set uplink up
nsenter --net=/proc/self/fd/3 ip addr add "$HOST_ADDRESS" dev "$CABLE"
nsenter --net=/proc/self/fd/3 ip link set "$CABLE" up
exec 3<&-

# Not exec: process 1 also reaps the processes that lose their parent. It ends with incusd, and all others with it.
incusd --group root &
trap 'kill -TERM $!' TERM
while kill -0 $! 2>/dev/null; do wait $! || true; done
