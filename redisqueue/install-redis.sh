#!/usr/bin/env bash
# Installs Debian's redis-server if it is missing, which only root can. It starts no service: the tests start servers and
# sentinels of their own, on their own ports of the loopback interface.
set -euo pipefail
if command -v redis-server >/dev/null; then
	exit 0
fi
if [ "$(id -u)" != 0 ]; then
	echo "There is no redis-server, and only root can install it: sudo apt-get install redis-server" >&2
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
apt-get install -q -y --no-install-recommends redis-server
