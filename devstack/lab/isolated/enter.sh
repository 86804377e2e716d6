# Functions for the scripts of first processes. Until enter_root they run programs of the machine, then those of the root folder.

# join_groups moves this process, and so all that it starts, into the groups in $GROUPS_OF_SERVER, one a line.
join_groups() {
  printf '%s\n' "$GROUPS_OF_SERVER" | while read -r group; do echo $$ >"$group/cgroup.procs"; done
}

# fill_root mounts what every server needs into the root folder, which is a mount and the working directory.
fill_root() {
  mount -t proc proc proc
  mount -t sysfs sysfs sys # that of this network namespace
  mount --rbind /sys/fs/cgroup sys/fs/cgroup
  mount --rbind /dev dev
  mount -t tmpfs -o mode=1777 tmpfs dev/shm
  mount -t tmpfs -o mode=0755 tmpfs run
  mount -t tmpfs -o mode=1777 tmpfs tmp
}

# enter_root makes the working directory the root of this mount namespace. Not by chroot: in one, the kernel refuses user namespaces.
enter_root() {
  mkdir run/host
  pivot_root . run/host
  umount -l /run/host
  rmdir /run/host
}

# run_server runs the server with its arguments until it ends. SIGTERM is passed on to it. Not exec: the first process also reaps the
# processes that lose their parent. All others end with it.
run_server() {
  "$@" &
  trap 'kill -TERM $!' TERM
  while kill -0 $! 2>/dev/null; do wait $! || true; done
}
