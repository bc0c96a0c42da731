#!/usr/bin/env bash
# Builds pebble, an authority for tests of ACME, on the machine where it will run. See --help.
set -euo pipefail
# shellcheck source=scripts/cache.sh
. "$(dirname "$(readlink -f "$0")")/cache.sh"

version=2.10.3
module=github.com/letsencrypt/pebble/v2
# The checksums of the module and its go.mod.
module_sum='h1:Zg/Rq9T8FvNMvfLvi3k+dXmrwgDnG9neRpeaJY2hwVM='
go_mod_sum='h1:t86OY665ATaOG3amRg83FSFMp7/L8MWjvlzBFmXANYc='

root="$cache/pebble"
dir="$root/$version"

usage() {
	cat <<-EOF
		Usage: scripts/pebble.sh [--help]

		Builds Let's Encrypt's pebble $version and its DNS server, pebble-challtestsrv, from the
		Go module proxy into
		  $dir
		and prints this directory. Does nothing if they are there already. To build them
		again, remove the directory. The tests get certificates from pebble. It is under the
		Mozilla Public License 2.0 and is not shipped.

		Environment:
		  XDG_CACHE_HOME  where caches live, default ~/.cache
		  GOPROXY         the Go module proxy, as for go itself

		Example:
		  "\$(scripts/pebble.sh)/pebble" -version
	EOF
}

present() { [[ -x "$dir/pebble" && -x "$dir/pebble-challtestsrv" ]]; }

build() {
	in_module pebble "$module" "v$version" "$module_sum" "$go_mod_sum"
	go build -trimpath -buildvcs=false -ldflags "-s -w" -o "$work/out/" "$module/cmd/pebble" "$module/cmd/pebble-challtestsrv"
	cp "$(go list -m -f '{{.Dir}}' "$module")/LICENSE" "$work/out/LICENSE"
	chmod -R u+w "$work/out"
}

options "$@"

fill 1.24 "Building pebble $version (a minute the first time)"
echo "$dir"
