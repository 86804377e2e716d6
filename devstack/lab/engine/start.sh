# Process 1 of the engine's namespaces (mount, PID, network); launch in server_linux.go starts it behind isolated/enter.sh, with:
#   ROOT     the cached root folder of the engine, which stays as it is
#   DATA     the engine's own folder
#   SHOWN    folders of the machine that the engine and its containers may read, one a line
#   GROUP    name of the engine's cgroup
#   ADDRESS  of the bridge of containers, with the length of its prefix

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
mount --bind "$DATA/docker" var/lib/docker # not on an overlay: images cannot be unpacked there
enter_root

ip link set lo up
# No DNS server is at that address, so lookups fail at once. With a server of the machine, or Docker's default, they would wait.
run_server dockerd --host=unix:///run/docker.sock --group=0 --data-root=/var/lib/docker --exec-root=/run/docker \
  --pidfile=/run/docker.pid --bip="$ADDRESS" --cgroup-parent="/$GROUP" --exec-opt=native.cgroupdriver=cgroupfs \
  --dns="${ADDRESS%/*}"
