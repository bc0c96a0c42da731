#!/usr/bin/env bash
# Builds Traefik into the user's cache, to test what a controller of Ingresses and of the Gateway API
# makes of the chart's. See --help.
set -euo pipefail
# shellcheck source=scripts/cache.sh
. "$(dirname "$(readlink -f "$0")")/cache.sh"

version=3.6.12
module=github.com/traefik/traefik/v3
# The checksums that sum.golang.org holds for the module and its go.mod; the module's go.sum
# has those of its dependencies.
module_sum='h1:6pe4s7aaDTQs+AsF7KP3sM/xnq7zOVvibRQe5tw9eFo='
go_mod_sum='h1:CAiMG7xwkYlNbIKsFzvgxSuHCqZ2KI/0DTQVkvS5Nuo='

root="$cache/traefik"
dir="$root/$version"

usage() {
	cat <<-EOT
		Usage: scripts/traefik.sh [--help]

		Builds Traefik $version without its dashboard from the Go module proxy into
		  $dir/traefik
		and prints that path. Does nothing if it is there already. To build it again, remove
		the directory. Traefik is under the MIT License and is not shipped.

		Only a test needs it: make test-ingress.

		Environment:
		  XDG_CACHE_HOME  where caches live, default ~/.cache
		  GOPROXY         the Go module proxy, as for go itself

		Example:
		  "\$(scripts/traefik.sh)" version
	EOT
}

present() { [[ -x "$dir/traefik" ]]; }

# build builds in the module's own directory, whose go.mod counts then.
build() {
	local source
	in_module traefik "$module" "v$version" "$module_sum" "$go_mod_sum"
	go mod download "$module"
	source=$(go list -m -f '{{.Dir}}' "$module")
	cd "$source"
	GOFLAGS=-mod=readonly go build -trimpath -buildvcs=false -ldflags "-s -w" -o "$work/out/traefik" ./cmd/traefik
}

options "$@"
fill 1.25 "Building Traefik $version (some minutes the first time)"
echo "$dir/traefik"
