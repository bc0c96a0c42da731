#!/usr/bin/env bash
# Builds Kubernetes' metrics server into the user's cache, to test the usage of resources on
# a cluster. See --help.
set -euo pipefail

version=0.9.0
module=sigs.k8s.io/metrics-server
# The checksums that sum.golang.org holds for the module and its go.mod; go
# itself checks the dependencies against that log.
module_sum='h1:nlqqZ2H0Xfko8eJC/1qaNVVT17hu4rxndkOi22KTZ4w='
go_mod_sum='h1:3TBautywhoi98sWsSf7jmkz5otEFeoRmbGpXf4gut48='

root="${XDG_CACHE_HOME:-$HOME/.cache}/faas-infer/metrics-server"
dir="$root/$version"

usage() {
	cat <<-EOT
		Usage: scripts/metrics-server.sh [--help]

		Builds Kubernetes' metrics server $version from the Go module proxy into
		  $dir
		and prints the program's path. Does nothing if it is there already. To build it
		again, remove the directory.

		Only tests need it: make test-kubernetes.

		Environment:
		  XDG_CACHE_HOME  where caches live, default ~/.cache
		  GOPROXY         the Go module proxy, as for go itself

		Example:
		  "\$(scripts/metrics-server.sh)" --help
	EOT
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

# build fills $1/out from a throw-away module.
build() {
	local work=$1
	export GOFLAGS=-mod=mod GOWORK=off CGO_ENABLED=0 GOTOOLCHAIN=local
	mkdir "$work/module" "$work/out"
	cd "$work/module"
	printf 'module metrics-server-build\n\ngo 1.24.0\n\nrequire %s v%s\n' "$module" "$version" >go.mod
	printf '%s v%s %s\n%s v%s/go.mod %s\n' "$module" "$version" "$module_sum" "$module" "$version" "$go_mod_sum" >go.sum
	go build -trimpath -buildvcs=false -o "$work/out/metrics-server" \
		-ldflags "-s -w -X k8s.io/client-go/pkg/version.gitVersion=v$version" "$module/cmd/metrics-server"
}

if [[ ! -x "$dir/metrics-server" ]]; then
	command -v go >/dev/null || {
		echo "metrics-server.sh: needs Go 1.26 or later on the PATH" >&2
		exit 1
	}
	echo "Building Kubernetes' metrics server $version (a minute or two the first time)" >&2
	mkdir -p "$root"
	work=$(mktemp -d "$root/.build-XXXXXX")
	trap 'rm -rf "$work"' EXIT
	(build "$work")
	# Rename within one file system: an interrupted build leaves nothing behind, and of
	# two concurrent builds the first one wins.
	mv -T "$work/out" "$dir" 2>/dev/null || [[ -x "$dir/metrics-server" ]] || {
		rm -rf "$dir"
		mv -T "$work/out" "$dir"
	}
fi
echo "$dir/metrics-server"
