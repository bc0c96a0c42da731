#!/usr/bin/env bash
# Fetches axe-core, which finds pages that some people cannot use. See --help.
set -euo pipefail
# shellcheck source=scripts/cache.sh
. "$(dirname "$(readlink -f "$0")")/cache.sh"

version=4.14.1
# The checksum of the file in npm's package.
sum=29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c

root="$cache/axe"
dir="$root/$version"

usage() {
	cat <<-EOF
		Usage: scripts/axe.sh [--help]

		Fetches axe-core from npm into
		  $dir
		and prints the file's path. Does nothing if it is there already. To fetch it again,
		remove the directory. Only the end-to-end tests of the console need it. It is under
		the MPL 2.0.

		Environment:
		  XDG_CACHE_HOME  where caches live, default ~/.cache

		Example:
		  head -c 200 "\$(scripts/axe.sh)"
	EOF
}

present() { echo "$sum  $dir/axe.min.js" | sha256sum --check --status 2>/dev/null; }

options "$@"

if ! present; then
	command -v npm >/dev/null || {
		echo "axe.sh: needs npm on the PATH" >&2
		exit 1
	}
	echo "Fetching axe-core $version" >&2
	begin
	(cd "$work" && npm pack --silent "axe-core@$version" >/dev/null)
	tar --extract --file "$work/axe-core-$version.tgz" --directory "$work/out" --strip-components 1 package/axe.min.js package/LICENSE
	echo "$sum  $work/out/axe.min.js" | sha256sum --check --status || {
		echo "axe.sh: the file differs from the one that was checked" >&2
		exit 1
	}
	keep "$work/out" "$dir" present
fi
echo "$dir/axe.min.js"
