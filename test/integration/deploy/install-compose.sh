#!/usr/bin/env bash
# Makes sure that this machine can read a compose file, and prints the command that does: "docker compose" or
# "docker-compose". No engine is needed for that. Installs Debian's package when there is neither; prints the reason and
# exits with 3 when it cannot.
set -euo pipefail

cannot() {
  echo "cannot check docker-compose.yml with Compose: $1" >&2
  exit 3
}

find_compose() {
  if docker compose version >/dev/null 2>&1; then
  	echo "docker compose"
  elif command -v docker-compose >/dev/null; then
  	echo "docker-compose"
  else
  	return 1
  fi
}

find_compose && exit
command -v apt-get >/dev/null || cannot "it is not installed, and there is no apt-get to install it with"
[ "$(id -u)" = 0 ] || cannot "it is not installed, and only root can install it (apt-get install docker-compose)"
install() { DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends docker-compose >&2; }
install || { apt-get update >&2 && install; } || cannot "apt-get could not install docker-compose"
find_compose
