#!/usr/bin/env bash
# Cuts a release in the repository of the working directory: commits on its branch, and a tag for each module. It pushes nothing.
#
#	bash tools/release.sh                             # the next minor version of each module that has changed
#	bash tools/release.sh .=v1.0.0 sharding=v0.3.1    # these modules, in these versions; "." is the root
#
# README.md explains the three commits that it makes.
set -euo pipefail
# Each module comes after those that it requires. Others are not published.
published=(. debug sharding controllerruntime handlertest otel redisqueue cmd/swap cmd/queuevet examples)
path=github.com/keyedqueue/workqueue
export GOWORK=off
fail() { printf '%s\n' "$*" >&2; exit 1; }

branch=$(git symbolic-ref --short HEAD) || fail "A release starts from a branch."
[ -z "$(git status --porcelain)" ] || fail "Commit your changes first."
awk '/^## / { on = $2 == "Unreleased"; next } on && NF { found = 1 } END { exit !found }' CHANGELOG.md ||
	fail "CHANGELOG.md has nothing under Unreleased."

prefix() { [ "$1" = . ] || printf '%s/' "$1"; } # of a module's tags
last() { git tag --list "$(prefix "$1")v*" | sed "s|^$(prefix "$1")||" | sort -V | tail -n 1; }
changed() { # since its last tag, whose parent has the files as they were on the branch
	local others=(":(exclude)CHANGELOG.md") file
	while read -r file; do
		[ "$(dirname "$file")" = "$1" ] || others+=(":(exclude)$(dirname "$file")")
	done < <(git ls-files '*go.mod' | grep / | if [ "$1" = . ]; then cat; else grep "^$1/" || true; fi)
	! git diff --quiet "$(prefix "$1")$(last "$1")^" HEAD -- "$1" "${others[@]}"
}

declare -A versions=()
if [ $# = 0 ]; then
	for module in "${published[@]}"; do
		if [ -z "$(last "$module")" ]; then
			versions[$module]=v0.1.0
		elif changed "$module"; then
			versions[$module]=$(last "$module" | awk -F. '{ print $1 "." $2 + 1 ".0" }')
		fi
	done
	[ ${#versions[@]} != 0 ] || fail "No module has changed since its last version."
fi
for argument; do
	module=${argument%%=*} version=${argument#*=}
	case " ${published[*]} " in *" $module "*) ;; *) fail "$module is not a published module: ${published[*]}." ;; esac
	[[ $version =~ ^v[01]\.[0-9]+\.[0-9]+$ ]] || fail "$argument does not say a version, as .=v0.1.0 does."
	before=$(last "$module")
	[ "$version" != "$before" ] && [ "$(printf '%s\n' "$before" "$version" | sort -V | tail -n 1)" = "$version" ] ||
		fail "$version of $module is not newer than $before."
	versions[$module]=$version
done
modules=() # those to be released, in the order of published
tags=()
for module in "${published[@]}"; do
	if [ -n "${versions[$module]-}" ]; then
		modules+=("$module")
		tags+=("$(prefix "$module")${versions[$module]}")
	fi
done
names=$(printf ', %s' "${tags[@]}")
names=${names#, }
if [ ${#modules[@]} = ${#published[@]} ] && [ "$(printf '%s\n' "${versions[@]}" | sort -u | wc -l)" = 1 ]; then
	names="${versions[.]} of all modules"
fi

# The branch moves at the very end. Until then a failure leaves it, and the tags, as they were.
git checkout --quiet --detach
cache=$(mktemp -d)
made=()
undo() {
	[ ${#made[@]} = 0 ] || git tag --delete "${made[@]}" >/dev/null
	git checkout --quiet --force "$branch"
	chmod -R u+w "$cache"
	rm -rf "$cache"
}
trap undo EXIT

# The first commit: the changelog's heading, and what the modules require of each other.
ours() { go mod edit -json | sed -n "s|^.*\"Path\": \"\($path[a-z/]*\)\",\$|\1|p" | sort -u; }
sed -i "s|^## Unreleased\$|&\n\n## $names ($(date +%F))|" CHANGELOG.md
for module in "${modules[@]}"; do
	for required in $(cd "$module" && ours); do
		sibling=${required#"$path"}
		sibling=${sibling#/}
		sibling=${sibling:-.}
		version=${versions[$sibling]-$(last "$sibling")}
		[ -n "$version" ] || fail "$module requires $sibling, which has no version yet."
		(cd "$module" && go mod edit -require "$required@$version")
	done
done
git commit --quiet --all --message "Release $names"
release=$(git rev-parse HEAD)

# The second: without replace directives. go mod tidy adds the sums of our modules, so it must find the tags of those that a
# module requires in this repository, and nothing of them in a cache.
export GOPROXY="file://$(go env GOMODCACHE)/cache/download,$(go env GOPROXY)" GOMODCACHE=$cache GOPRIVATE=$path
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=url.file://$PWD.insteadOf GIT_CONFIG_VALUE_0=https://$path
for module in "${modules[@]}"; do
	(
		cd "$module"
		ours | xargs -r -I{} go mod edit -dropreplace {}
		! grep -q '^replace' go.mod || fail "$module replaces what a published module cannot."
		go mod tidy
	)
	tag=$(prefix "$module")${versions[$module]}
	git diff --quiet || git commit --quiet --all --message "$tag, as it is published"
	git tag --annotate --message "$path $tag" "$tag"
	made+=("$tag")
done
git reset --quiet --soft "$release" # All tags on one commit.
git commit --quiet --allow-empty --message "$names, as published"
for tag in "${tags[@]}"; do
	git tag --force --annotate --message "$path $tag" "$tag" >/dev/null
done

# The third: the directives are back, for further work.
git checkout --quiet "$release" -- .
git commit --quiet --allow-empty --message "After $names: modules build from the checkout"
git checkout --quiet -B "$branch"
made=()
printf '%s: committed and tagged. To publish:\n\n\tgit push --atomic origin %s %s\n' "$names" "$branch" "${tags[*]}"
