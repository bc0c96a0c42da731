#!/usr/bin/env bash
# Builds Helm into the user's cache, to test the chart. See --help.
set -euo pipefail

version=3.20.2
module=helm.sh/helm/v3

root="${XDG_CACHE_HOME:-$HOME/.cache}/faas-infer/helm"
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

case "${1-}" in
-h | --help)
	usage
	exit
	;;
'') ;;
*)
	usage >&2
	exit 2
	;;
esac

if [[ ! -x "$dir/helm" ]]; then
	command -v go >/dev/null || {
		echo "helm.sh: needs Go 1.24 or later on the PATH" >&2
		exit 1
	}
	echo "Building Helm $version (a minute or two the first time)" >&2
	mkdir -p "$root"
	work=$(mktemp -d "$root/.build-XXXXXX")
	trap 'rm -rf "$work"' EXIT
	(
		# In a throw-away directory no go.mod applies, and go checks every download
		# against sum.golang.org.
		cd "$work"
		export GOFLAGS=-buildvcs=false GOWORK=off CGO_ENABLED=0 GOTOOLCHAIN=local GOBIN="$work/out"
		go install -trimpath -ldflags "-s -w -X $module/internal/version.version=v$version" "$module/cmd/helm@v$version"
	)
	# Rename within one file system: an interrupted build leaves nothing behind, and of
	# two concurrent builds the first one wins.
	mv -T "$work/out" "$dir" 2>/dev/null || [[ -x "$dir/helm" ]] || {
		rm -rf "$dir"
		mv -T "$work/out" "$dir"
	}
fi
echo "$dir/helm"
