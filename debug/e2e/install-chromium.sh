#!/usr/bin/env bash
# Installs Debian's chromium if there is none, which only root can. Ubuntu's package of that name is a stub
# for a snap; there, a chrome that is installed already will do.
set -euo pipefail
for name in chromium google-chrome chromium-browser; do
	! command -v "$name" >/dev/null || exit 0
done
if [ "$(id -u)" != 0 ]; then
	echo "There is no chromium, and only root can install it: sudo apt-get install chromium" >&2
	exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -q -y --no-install-recommends chromium
