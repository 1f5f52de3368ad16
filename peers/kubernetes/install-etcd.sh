#!/usr/bin/env bash
# Installs Debian's etcd-server if there is no etcd, which only root can. It starts no service: the programs here start
# servers of their own, on their own ports of the loopback interface.
set -euo pipefail
if command -v etcd >/dev/null; then
	exit 0
fi
if [ "$(id -u)" != 0 ]; then
	echo "There is no etcd, and only root can install it: sudo apt-get install etcd-server" >&2
	exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
# The package starts its service unless this says that it may not (101).
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
	trap 'rm -f "$policy"' EXIT
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod +x "$policy"
fi
apt-get install -q -y --no-install-recommends etcd-server
