#!/usr/bin/env bash
# Tests modules of this repository with the newest version of what they require themselves; the rest follows. Their go.mod
# files name the lowest versions that work, because users inherit them, and all other tests run with those.
#
#	bash tools/test-newest.sh . otel    # the directories of the modules
#
# The go.mod that changes is a copy. Beside it the go command also keeps a go.sum.
set -euo pipefail
cd "$(dirname "$0")/.."
export GOWORK=off
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
required() { go list -m -f "{{if not (or .Main .Indirect .Replace)}}$1{{end}}" all; }

for module; do
	(
		cd "$module"
		cp go.mod go.sum "$scratch"
		export GOFLAGS="${GOFLAGS:-} -modfile=$scratch/go.mod"
		# Not "go get -u": it also asks for versions of our own modules, and takes every library's last commit.
		required '{{.Path}}@latest' | xargs go get
		go mod tidy
		echo "$module with the newest of what it requires:"
		required '	{{.Path}} {{.Version}}'
		go vet ./...
		go test -short ./...
	)
done
