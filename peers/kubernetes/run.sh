#!/usr/bin/env bash
# Builds the program of this directory and runs it: bash peers/kubernetes/run.sh controlplane -h
# It installs etcd if that is missing, which only root can.
set -euo pipefail
cd "$(dirname "$0")"
bash ../../tools/install-server.sh etcd etcd-server
export GOWORK=off # This module pins versions of Kubernetes, which a workspace would apply to all modules.
go build -trimpath -o bin/kubernetes .
exec bin/kubernetes "$@"
