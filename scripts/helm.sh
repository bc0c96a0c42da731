#!/usr/bin/env bash
# Builds Helm into the user's cache, to test the chart. See --help.
set -euo pipefail
# shellcheck source=scripts/cache.sh
. "$(dirname "$(readlink -f "$0")")/cache.sh"

version=3.20.2
module=helm.sh/helm/v3

root="$cache/helm"
dir="$root/$version"

usage() {
	cat <<-EOF
		Usage: scripts/helm.sh [--help]

		Builds Helm $version from the Go module proxy into
		  $dir
		and prints the program's path. Does nothing if it is there already. To build it
		again, remove the directory.

		Environment:
		  XDG_CACHE_HOME  where caches live, default ~/.cache
		  GOPROXY         the Go module proxy, as for go itself

		Example:
		  "\$(scripts/helm.sh)" template faas-infer yaml/chart/faas-infer --namespace openfaas
	EOF
}

present() { [[ -x "$dir/helm" ]]; }

# In a throw-away directory no go.mod applies, and go checks every download against
# sum.golang.org.
build() {
	cd "$work"
	export GOFLAGS=-buildvcs=false GOBIN="$work/out"
	go install -trimpath -ldflags "-s -w -X $module/internal/version.version=v$version" "$module/cmd/helm@v$version"
}

options "$@"
fill 1.24 "Building Helm $version (a minute or two the first time)"
echo "$dir/helm"
