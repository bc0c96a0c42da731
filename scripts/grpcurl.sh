#!/usr/bin/env bash
# Builds grpcurl on the machine where it will run. See --help.
set -euo pipefail
# shellcheck source=scripts/cache.sh
. "$(dirname "$(readlink -f "$0")")/cache.sh"

version=1.9.3
module=github.com/fullstorydev/grpcurl
# The checksums of the module and its go.mod.
module_sum='h1:PC1Xi3w+JAvEE2Tg2Gf2RfVgPbf9+tbuQr1ZkyVU3jk='
go_mod_sum='h1:/b4Wxe8bG6ndAjlfSUjwseQReUDUvBJiFEB7UllOlUE='

root="$cache/grpcurl"
dir="$root/$version"

usage() {
	cat <<-EOF
		Usage: scripts/grpcurl.sh [--help]

		Builds grpcurl from the Go module proxy into
		  $dir
		and prints the binary's path. Does nothing if it is there already. To build it
		again, remove the directory. The tests call the provider with it. It is under the MIT
		licence.

		Environment:
		  XDG_CACHE_HOME  where caches live, default ~/.cache
		  GOPROXY         the Go module proxy, as for go itself

		Example:
		  "\$(scripts/grpcurl.sh)" -plaintext 127.0.0.1:8080 list
	EOF
}

present() { [[ -x "$dir/grpcurl" ]]; }

build() {
	in_module grpcurl "$module" "v$version" "$module_sum" "$go_mod_sum"
	go build -trimpath -buildvcs=false -o "$work/out/grpcurl" -ldflags '-s -w' "$module/cmd/grpcurl"
	cp "$(go list -f '{{.Module.Dir}}' "$module/cmd/grpcurl")/LICENSE" "$work/out/LICENSE"
	# The module cache is read-only; its copy has to be removable.
	chmod -R u+w "$work/out"
}

options "$@"

fill 1.24 "Building grpcurl $version (a minute the first time)"
echo "$dir/grpcurl"
