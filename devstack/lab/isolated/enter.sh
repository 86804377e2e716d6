# Functions for scripts that run as process 1. Before enter_root a script runs the machine's programs, then the root folder's programs.

# join_groups moves this process into the cgroups in $GROUPS_OF_SERVER, one per line. Child processes inherit the cgroups.
join_groups() {
  printf '%s\n' "$GROUPS_OF_SERVER" | while read -r group; do echo $$ >"$group/cgroup.procs"; done
}

# fill_root mounts the file systems that every server needs into the root folder. The root folder is a mount and the working directory.
fill_root() {
  mount -t proc proc proc
  mount -t sysfs sysfs sys # sysfs of this network namespace
  mount --rbind /sys/fs/cgroup sys/fs/cgroup
  mount --rbind /dev dev
  mount -t tmpfs -o mode=1777 tmpfs dev/shm
  mount -t tmpfs -o mode=0755 tmpfs run
  mount -t tmpfs -o mode=1777 tmpfs tmp
}

# enter_root makes the working directory the root of this mount namespace. The kernel refuses user namespaces in a chroot: use pivot_root.
enter_root() {
  mkdir run/host
  pivot_root . run/host
  umount -l /run/host
  rmdir /run/host
}

# run_server runs the server with its arguments until the server ends, and forwards SIGTERM to the server. run_server does not exec:
# process 1 also reaps orphaned processes. When process 1 ends, the kernel kills all other processes.
run_server() {
  "$@" &
  trap 'kill -TERM $!' TERM
  while kill -0 $! 2>/dev/null; do wait $! || true; done
}
