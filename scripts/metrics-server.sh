#!/usr/bin/env bash
# Builds Kubernetes' metrics server into the user's cache, to test the usage of resources on
# a cluster. See --help.
set -euo pipefail
# shellcheck source=scripts/cache.sh
. "$(dirname "$(readlink -f "$0")")/cache.sh"

version=0.9.0
module=sigs.k8s.io/metrics-server
# The checksums of the module and its go.mod.
module_sum='h1:nlqqZ2H0Xfko8eJC/1qaNVVT17hu4rxndkOi22KTZ4w='
go_mod_sum='h1:3TBautywhoi98sWsSf7jmkz5otEFeoRmbGpXf4gut48='

root="$cache/metrics-server"
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

present() { [[ -x "$dir/metrics-server" ]]; }

build() {
	in_module metrics-server "$module" "v$version" "$module_sum" "$go_mod_sum"
	go build -trimpath -buildvcs=false -o "$work/out/metrics-server" \
		-ldflags "-s -w -X k8s.io/client-go/pkg/version.gitVersion=v$version" "$module/cmd/metrics-server"
}

options "$@"
fill 1.26 "Building Kubernetes' metrics server $version (a minute or two the first time)"
echo "$dir/metrics-server"
