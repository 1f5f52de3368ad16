#!/usr/bin/env bash
# Puts Debian's promtool into this folder if PATH has none, without installing Prometheus.
set -euo pipefail
cd "$(dirname "$0")"
if command -v promtool >/dev/null || [ -x bin/promtool ]; then
	exit 0
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
[ "$(id -u)" != 0 ] || apt-get update -q
(cd "$scratch" && apt-get download -q prometheus && dpkg-deb -x prometheus_*.deb .)
mkdir -p bin
cp "$scratch/usr/bin/promtool" bin/
