#!/usr/bin/env bash
# Tests modules of this repository with the newest version of every requirement. Their go.mod files name the lowest
# versions that work, because users inherit them, and all other tests run with those.
#
#	bash tools/test-newest.sh . otel    # the directories of the modules
#
# The go.mod that changes is a copy. Beside it the go command keeps a go.sum, too.
set -euo pipefail
cd "$(dirname "$0")/.."
export GOWORK=off
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

for module; do
	(
		cd "$module"
		cp go.mod go.sum "$scratch"
		export GOFLAGS="${GOFLAGS:-} -modfile=$scratch/go.mod"
		# Not "go get -u", which also asks for versions of our own modules.
		go mod edit -json "$scratch/go.mod" | sed -n 's|^.*"Path": "\(.*\)",$|\1@latest|p' |
			grep -v ^github.com/keyedqueue/workqueue | sort -u | xargs go get
		go mod tidy
		echo "$module: $(go mod edit -json "$scratch/go.mod" | grep -c '"Version"') requirements at their newest:"
		go list -m -f '{{if not (or .Main .Indirect .Replace)}}	{{.Path}} {{.Version}}{{end}}' all
		go vet ./...
		go test -short ./...
	)
done
