#!/bin/sh
# Runs the program of its own name from the unpacked package, with all arguments. Debian's Alertmanager and amtool read
# templates below /usr/share, where only an installed package has them: the program runs in a mount namespace of its own, in which
# /usr/share is the package's. The process stays the same one, so that signals reach the program.
set -eu
case $0 in *alertmanager) program=prometheus-alertmanager ;; *) program=amtool ;; esac
# A user who is not root may mount in a user namespace of their own. There the process begins without its parent-death signal.
[ "$(id -u)" -eq 0 ] && user= || user=--map-root-user
exec unshare --mount $user sh -euc '
  mount --bind "$0/usr/share" /usr/share
  program=$1
  shift
  exec setpriv --pdeathsig KILL "$0/usr/bin/$program" "$@"
' "$(dirname "$0")/.." "$program" "$@"
