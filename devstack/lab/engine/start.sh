# Process 1 of the engine's namespaces (mount, PID, network). launch in server_linux.go starts this script after isolated/enter.sh, with:
#   ROOT     the engine's root folder in the cache; an overlay keeps it unchanged
#   DATA     the engine's data folder
#   SHOWN    folders of the machine that the engine and its containers may read, one per line
#   GROUP    name of the engine's cgroup
#   ADDRESS  address of the containers' bridge, with the prefix length

join_groups

mount --make-rprivate /
mkdir -p "$DATA/changes" "$DATA/work" "$DATA/root" "$DATA/docker"
mount -t overlay -o "lowerdir=$ROOT,upperdir=$DATA/changes,workdir=$DATA/work" overlay "$DATA/root"
cd "$DATA/root"
mkdir -p proc sys dev run tmp
fill_root
printf '%s\n' "$SHOWN" | while read -r folder; do
  [ -n "$folder" ] || continue
  mkdir -p ".$folder"
  mount --bind "$folder" ".$folder"
  mount -o remount,bind,ro ".$folder"
done
mkdir -p var/lib/docker
mount --bind "$DATA/docker" var/lib/docker # images cannot be unpacked on an overlay
enter_root

ip link set lo up
# No DNS server listens at the bridge's address: lookups fail at once. With the machine's or Docker's default server lookups would wait.
run_server dockerd --host=unix:///run/docker.sock --group=0 --data-root=/var/lib/docker --exec-root=/run/docker \
  --pidfile=/run/docker.pid --bip="$ADDRESS" --cgroup-parent="/$GROUP" --exec-opt=native.cgroupdriver=cgroupfs \
  --dns="${ADDRESS%/*}"
