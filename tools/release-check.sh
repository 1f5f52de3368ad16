#!/usr/bin/env bash
# Rehearses a release of the working tree, and uses it as somebody does who has nothing but a module proxy and an empty
# module cache. Nothing is published, and the repository stays as it is. README.md says more.
set -euo pipefail
cd "$(dirname "$0")/.."
scratch=$(mktemp -d)
trap 'chmod -R u+w "$scratch"; rm -rf "$scratch"' EXIT
export GOWORK=off
path=github.com/keyedqueue/workqueue
say() { printf -- '-- %s\n' "$*"; }
quietly() { "$@" >"$scratch/log" 2>&1 || { cat "$scratch/log"; exit 1; }; }
go build -C tools -o "$scratch/gorelease" golang.org/x/exp/cmd/gorelease

say "cut a release, in a repository that has the files of this one"
export GIT_AUTHOR_NAME=check GIT_AUTHOR_EMAIL=check GIT_COMMITTER_NAME=check GIT_COMMITTER_EMAIL=check
git init --quiet --initial-branch=main "$scratch/repository"
comm -z -23 <(git ls-files -z --cached --others --exclude-standard | sort -zu) <(git ls-files -z --deleted | sort -zu) |
	tar --null --files-from=- --create | tar --extract --directory "$scratch/repository"
git -C "$scratch/repository" add --all
git -C "$scratch/repository" commit --quiet --message "what is to be released"
(cd "$scratch/repository" && quietly bash tools/release.sh)
version=$(git -C "$scratch/repository" describe --abbrev=0 --match 'v*') # The tags lie on the branch.
git -C "$scratch/repository" diff --exit-code --stat HEAD~3 HEAD -- '*.go' '*.mod' '*.sum' # The branch builds as before.

# compile_with_root compiles each of our submodules, as tagged last in the repository $1, with the root in $2: programs
# upgrade the one without the other.
compile_with_root() {
	local module tag modules=() replaced=("-replace=$path=$2")
	rm -rf "$scratch/last" && mkdir "$scratch/last"
	for module in controllerruntime debug handlertest otel redisqueue sharding; do
		tag=$(git -C "$1" tag --list "$module/v*" --sort=-version:refname | head -n 1)
		[ -n "$tag" ] || continue # It was not released yet.
		git -C "$1" archive "$tag" "$module" | tar --extract --directory "$scratch/last"
		modules+=("$tag")
		replaced+=("-replace=$path/$module=$scratch/last/$module") # For those that require one another.
	done
	for tag in "${modules[@]}"; do
		(cd "$scratch/last/${tag%/*}" && go mod edit "${replaced[@]}" && quietly go build -mod=mod ./...)
		say "$tag compiles"
	done
}

say "submodules as released last, and as cut now, with the root of this tree"
compile_with_root "$PWD" "$PWD"
compile_with_root "$scratch/repository" "$PWD"

say "a module proxy that serves $version"
export GOSUMDB=off # Our version is in no database. All other sums are in our go.sum files.
others="file://$(go env GOMODCACHE)/cache/download,$(go env GOPROXY)"
git -C "$scratch/repository" tag --list "*$version" | while read -r tag; do
	module=$path/$tag
	(cd "$scratch" && quietly env GOMODCACHE="$scratch/published" GOPROXY=direct GIT_CONFIG_COUNT=1 GIT_CONFIG_VALUE_0="https://$path" \
		GIT_CONFIG_KEY_0="url.file://$scratch/repository.insteadOf" go mod download "${module%/"$version"}@$version")
done
# From here on there is no repository: only the zips, and an empty cache.
export GOPROXY="file://$scratch/published/cache/download,$others" GOMODCACHE=$scratch/cache GOFLAGS=-trimpath

# Raw data of benchmarks must not be in a published module, nor pictures that outweigh the code.
large=$(find "$scratch/published/cache/download" -name '*.zip' -size +1100k)
[ -z "$large" ] || { printf 'larger than 1.1 MB: %s\n' "$large"; exit 1; }

say "every published module loads as it is tagged, with its go.sum"
git -C "$scratch/repository" checkout --quiet "$version"
git -C "$scratch/repository" tag --list "*$version" | while read -r tag; do
	(cd "$scratch/repository/${tag%"$version"}" && quietly go list -deps ./...)
done

say "each library, in an empty module: get it, build a program with it, run the program and its tests"
while read -r name package; do
	mkdir "$scratch/$name"
	cp "tools/testdata/consumers/$name/"* "$scratch/$name"
	(
		cd "$scratch/$name"
		quietly go mod init example.com/consumer
		quietly go get "$package@$version"
		quietly go mod tidy
		quietly go build -o consumer .
		[ "$(./consumer)" = "$name" ]
		quietly go test -short .
	)
done <<-END
	root $path
	$(for name in wait worker workqueuetest prom debug priorityqueue controllerruntime handlertest otel redisqueue sharding; do echo "$name $path/$name"; done)
END

say "each program: go install"
export GOBIN=$scratch/bin
for program in examples/dirsync examples/jobs examples/kube examples/tracing cmd/swap cmd/queuevet; do
	(cd "$scratch" && quietly go install "$path/$program@$version")
done

say "dirsync copies a directory, tracing prints spans, kube runs its demo"
quietly "$GOBIN/dirsync" -once docs "$scratch/copy"
diff -r docs "$scratch/copy"
"$GOBIN/tracing" | grep "handle kitchen" >/dev/null
quietly "$GOBIN/kube" -demo

say "queuevet finds metrics that vanish"
mkdir "$scratch/vetted"
cp tools/testdata/consumers/queuevet/main.go "$scratch/vetted"
(
	cd "$scratch/vetted"
	quietly go mod init example.com/vetted
	quietly go get "$path@$version" k8s.io/client-go@v0.37.2
	quietly go mod tidy
	! "$GOBIN/queuevet" ./... 2>"$scratch/log"
	grep "metrics of the queues that example.com/vetted makes are not registered" "$scratch/log" >/dev/null
)

say "swap runs a program of client-go on the released queue"
mkdir "$scratch/swapped"
cp tools/testdata/consumers/swap/main.go "$scratch/swapped"
(
	cd "$scratch/swapped"
	quietly go mod init example.com/swapped
	quietly go get k8s.io/client-go@v0.37.2
	quietly go mod tidy
	quietly "$GOBIN/swap"
	[ "$(go run -modfile=swap.mod .)" = swap ]
)

say "what changes afterwards gets a version of its own"
(
	cd "$scratch/repository"
	git checkout --quiet main
	refused() { if bash tools/release.sh "${@:2}" >"$scratch/log" 2>&1 || ! grep "$1" "$scratch/log" >/dev/null; then cat "$scratch/log"; exit 1; fi; }
	refused "nothing under Unreleased" .=v0.1.1
	sed -i 's/^## Unreleased$/&\n\n- Something./' CHANGELOG.md
	git commit --quiet --all --message "nothing that a module has"
	refused "No module has changed"
	refused "is not newer" sharding="$version"
	refused "not a published module" peers=v0.2.0
	echo "// Changed." >>sharding/doc.go
	git commit --quiet --all --message "sharding has changed"
	quietly bash tools/release.sh
	[ "$(git tag --points-at HEAD~1)" = sharding/v0.2.0 ] # Those of examples, which require it, stay.
	git show sharding/v0.2.0:sharding/go.mod | grep "$path $version" >/dev/null
	sed -i 's/^## Unreleased$/&\n\n- Something./' CHANGELOG.md
	git commit --quiet --all --message "more"
	quietly bash tools/release.sh .=v1.0.0 sharding=v0.2.1
	git show sharding/v0.2.1:sharding/go.mod | grep "$path v1.0.0" >/dev/null
	[ -z "$(git status --porcelain)" ] && [ "$(git symbolic-ref --short HEAD)" = main ]
)

say "gorelease compares the API with $version, and finds no difference"
(cd "$scratch/repository" && git checkout --quiet main && "$scratch/gorelease" -base="$version" >"$scratch/log" 2>&1 || true)
if grep -E '^## (in)?compatible' "$scratch/log"; then
	cat "$scratch/log"
	exit 1
fi
grep -E '^(# summary|Base version)' "$scratch/log"
