#!/usr/bin/env bash
# Cuts a release of all published modules in the repository of the working directory. It commits and tags, and pushes
# nothing. Without an argument the version is the next minor one.
#
#	bash tools/release.sh [v0.1.0]
#
# docs/project/releasing.md explains the two commits that it makes.
set -euo pipefail
# Each module comes after those that it requires. Others get the version in their go.mod, but no tag.
published=(. controllerruntime otel redisqueue sharding cmd/swap cmd/queuevet examples)
path=github.com/keyedqueue/workqueue
export GOWORK=off
fail() { printf '%s\n' "$*" >&2; exit 1; }

branch=$(git symbolic-ref --short HEAD) || fail "A release starts from a branch."
[ -z "$(git status --porcelain)" ] || fail "Commit your changes first."
last=$(sed -n 's/^## \(v[0-9.]*\) .*/\1/p' CHANGELOG.md | head -n 1)
next=v0.1.0
[ -z "$last" ] || next=$(awk -F. '{ print $1 "." $2 + 1 ".0" }' <<<"$last")
version=${1:-$next}
[[ $version =~ ^v[01]\.[0-9]+\.[0-9]+$ ]] || fail "$version is not a version like v0.1.0."
[ "$(printf '%s\n' "$last" "$version" | sort -V | tail -n 1)" = "$version" ] && [ "$version" != "$last" ] ||
	fail "$version is not newer than $last."
awk '/^## / { on = $2 == "Unreleased"; next } on && NF { found = 1 } END { exit !found }' CHANGELOG.md ||
	fail "CHANGELOG.md has nothing under Unreleased."

ours() { go mod edit -json | sed -n "s|^.*\"Path\": \"\($path[a-z/]*\)\",\$|\1|p" | sort -u; }
sed -i "s/^## Unreleased\$/&\n\n## $version ($(date +%F))/" CHANGELOG.md
git ls-files '*go.mod' | while read -r file; do
	(cd "$(dirname "$file")" && ours | xargs -r -I{} go mod edit -require "{}@$version")
done
git commit --quiet --all --message "Release $version"

# The second commit, on no branch. go mod tidy adds the sums of our modules, so it must find the tags of those that a
# module requires in this repository, and nothing of them in a cache.
git checkout --quiet --detach
cache=$(mktemp -d)
trap 'git checkout --quiet --force "$branch"; chmod -R u+w "$cache"; rm -rf "$cache"' EXIT
export GOPROXY="file://$(go env GOMODCACHE)/cache/download,$(go env GOPROXY)" GOMODCACHE=$cache GOPRIVATE=$path
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=url.file://$PWD.insteadOf GIT_CONFIG_VALUE_0=https://$path
tags=()
for module in "${published[@]}"; do
	(
		cd "$module"
		ours | xargs -r -I{} go mod edit -dropreplace {}
		! grep -q '^replace' go.mod || fail "$module replaces what a published module cannot."
		go mod tidy
	)
	tag=${module#.}/$version
	tags+=("${tag#/}")
	git diff --quiet || git commit --quiet --all --message "$version, as it is published: $module"
	git tag --annotate --message "$path/$module $version" "${tag#/}"
done
# All tags on one commit.
git reset --quiet --soft "$branch"
git commit --quiet --allow-empty --message "$version, as it is published"
for tag in "${tags[@]}"; do
	git tag --force --annotate --message "$path ${tag}" "$tag" >/dev/null
done
printf '%s is committed and tagged. To publish it:\n\n\tgit push --atomic origin %s %s\n' "$version" "$branch" "${tags[*]}"
