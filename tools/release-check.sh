#!/usr/bin/env bash
# Rehearses a release of the working tree, and uses it as somebody does who has nothing but a module proxy: gets, builds
# and runs every package in empty modules with an empty module cache, and installs the programs. Nothing is published,
# and the repository stays as it is. docs/releasing.md says more.
set -euo pipefail
cd "$(dirname "$0")/.."
repository=$PWD
scratch=$(mktemp -d)
trap 'chmod -R u+w "$scratch"; rm -rf "$scratch"' EXIT
export GOWORK=off
say() { printf -- '-- %s\n' "$*"; }
quietly() { "$@" >"$scratch/log" 2>&1 || { cat "$scratch/log"; exit 1; }; }

say "the release command"
go -C tools test ./release
go -C tools build -o "$scratch/release" ./release
"$scratch/release" -C . api

say "a rehearsal, in a repository that has the files of this one"
export GIT_AUTHOR_NAME=check GIT_AUTHOR_EMAIL=check GIT_COMMITTER_NAME=check GIT_COMMITTER_EMAIL=check
git init --quiet --initial-branch=main "$scratch/repository"
comm -z -23 <(git ls-files -z --cached --others --exclude-standard | sort -zu) <(git ls-files -z --deleted | sort -zu) |
	tar --null --files-from=- --create | tar --extract --directory "$scratch/repository"
git -C "$scratch/repository" add --all
git -C "$scratch/repository" commit --quiet --message "what is to be released"
"$scratch/release" -C "$scratch/repository" cut
version=$(git -C "$scratch/repository" tag --list 'v*')
"$scratch/release" -C "$scratch/repository" proxy "$version" "$scratch/proxy"

# Raw data of benchmarks must not be in a published module, nor a program that was built by mistake.
large=$(find "$scratch/proxy" -name '*.zip' -size +1000k)
[ -z "$large" ] || { printf 'larger than 1 MB: %s\n' "$large"; exit 1; }

say "go makes the same zips of the tags"
go_mod_sums() { # Prints the sums of all published modules, as the go command finds them by the environment.
	git -C "$scratch/repository" tag --list "*$version" | while read -r tag; do
		path=github.com/keyedqueue/workqueue/$tag
		(cd "$scratch" && go mod download -json "${path%/"$version"}@$version") | sed -n 's|^.*"\(Path\|Sum\|GoModSum\)": "\(.*\)".*|\1 \2|p'
	done
}
export GOSUMDB=off # Our version is in no database; everybody else's sums are in our go.sum files.
outside="file://$(go env GOMODCACHE)/cache/download,$(go env GOPROXY)"
GOPROXY=direct GOMODCACHE=$scratch/direct GIT_CONFIG_COUNT=1 GIT_CONFIG_VALUE_0=https://github.com/keyedqueue/workqueue \
	GIT_CONFIG_KEY_0=url.file://$scratch/repository.insteadOf go_mod_sums >"$scratch/of-tags"
# From here on there is no repository: only the zips, and an empty cache.
export GOPROXY="file://$scratch/proxy,$outside" GOMODCACHE=$scratch/cache GOFLAGS=-trimpath
go_mod_sums >"$scratch/of-zips"
diff "$scratch/of-tags" "$scratch/of-zips"

say "every published module builds as it is tagged, with its go.sum"
git -C "$scratch/repository" checkout --quiet "$version"
git -C "$scratch/repository" tag --list "*/$version" | while read -r tag; do
	(cd "$scratch/repository/${tag%/"$version"}" && ! grep ^replace go.mod && quietly go list -deps ./...)
done

consume() { # In an empty module: get the package, build and run a program with it, which prints its own name.
	say "go get $2@$version"
	mkdir "$scratch/$1"
	cp "tools/release/testdata/consumers/$1/main.go" "$scratch/$1"
	(
		cd "$scratch/$1"
		quietly go mod init example.com/consumer
		quietly go get "$2@$version"
		quietly go mod tidy
		quietly go build -o consumer .
		[ "$(./consumer)" = "$1" ]
	)
}
consume root github.com/keyedqueue/workqueue
for name in worker prom debug priorityqueue controllerruntime otel redisqueue; do
	consume "$name" "github.com/keyedqueue/workqueue/$name"
done

say "go install of the programs"
export GOBIN=$scratch/bin
programs=(examples/dirsync examples/jobs examples/kube cmd/swap cmd/queuevet)
go_install() { (cd "$scratch" && quietly go install "github.com/keyedqueue/workqueue/$1@$version"); }
for program in "${programs[@]}"; do
	go_install "$program"
	# -h is there, and says how the program is used.
	"$GOBIN/${program##*/}" -h 2>&1 | grep -i -e usage -e flags >/dev/null || { echo "$program -h says nothing"; exit 1; }
done
go_install examples/tracing # It has no flags.
"$GOBIN/tracing" | grep "handle kitchen" >/dev/null
quietly "$GOBIN/dirsync" -once docs "$scratch/copy"
diff -r docs "$scratch/copy"

say "swap, on a program of client-go"
mkdir "$scratch/swapped"
cp tools/release/testdata/consumers/swap/main.go "$scratch/swapped"
(
	cd "$scratch/swapped"
	quietly go mod init example.com/swapped
	quietly go get k8s.io/client-go@v0.37.2
	quietly go mod tidy
	quietly "$GOBIN/swap"
	[ "$(go run -modfile=swap.mod .)" = swap ]
)

say "the API comparison finds no difference to what was just released"
"$scratch/release" -C "$scratch/repository" api "$version" | tee "$scratch/api"
! grep -q compatible "$scratch/api"
