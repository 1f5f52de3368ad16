#!/usr/bin/env bash
# Installs a server of Debian's that tests need, if its command is missing, which only root can. It starts no
# service: the tests start servers of their own, on their own ports of the loopback interface.
#
#	bash tools/install-server.sh redis-server
#	bash tools/install-server.sh etcd etcd-server   # the command, and the package if it has another name
set -euo pipefail
command=$1 package=${2:-$1}
if command -v "$command" >/dev/null; then
	exit 0
fi
if [ "$(id -u)" != 0 ]; then
	echo "There is no $command, and only root can install it: sudo apt-get install $package" >&2
	exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
# The packages start their services unless this says that they may not (101).
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
	trap 'rm -f "$policy"' EXIT
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod +x "$policy"
fi
apt-get install -q -y --no-install-recommends "$package"
