#!/bin/sh
# Runs the program with this script's file name from the unpacked package, with all arguments. Debian's Alertmanager and amtool read
# templates below /usr/share, where only an installed package has files: the program runs in a mount namespace in which /usr/share is
# the unpacked package's folder. exec keeps the process ID: signals reach the program.
set -eu
case $0 in *alertmanager) program=prometheus-alertmanager ;; *) program=amtool ;; esac
# A user without root rights may mount in a new user namespace. The parent-death signal is lost there: setpriv sets it again.
[ "$(id -u)" -eq 0 ] && user= || user=--map-root-user
exec unshare --mount $user sh -euc '
  mount --bind "$0/usr/share" /usr/share
  program=$1
  shift
  exec setpriv --pdeathsig KILL "$0/usr/bin/$program" "$@"
' "$(dirname "$0")/.." "$program" "$@"
