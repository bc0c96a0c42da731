#!/usr/bin/env bash
# Builds versitygw, an S3 server for tests, on the machine where it will run. See --help.
set -euo pipefail
# shellcheck source=scripts/cache.sh
. "$(dirname "$(readlink -f "$0")")/cache.sh"

version=1.8.0
module=github.com/versity/versitygw
# The checksums of the module and its go.mod.
module_sum='h1:au+wI+aybno/STsQiSm35Uu6Q6iK5MWReQxgO6SEMFc='
go_mod_sum='h1:OxcWzwHy0xd9yUjfBneYnqmOwOgyq4QpzpobLsXMQRU='

root="$cache/versitygw"
dir="$root/$version"

usage() {
	cat <<-EOF
		Usage: scripts/versitygw.sh [--help]

		Builds Versity's S3 gateway $version from the Go module proxy into
		  $dir
		and prints this directory. Does nothing if it is there already. To build it again,
		remove the directory. The tests keep models in it. It is under the Apache Licence
		2.0 and is not shipped.

		Environment:
		  XDG_CACHE_HOME  where caches live, default ~/.cache
		  GOPROXY         the Go module proxy, as for go itself

		Example:
		  mkdir /tmp/objects
		  "\$(scripts/versitygw.sh)/versitygw" --access key --secret secret posix /tmp/objects
	EOF
}

present() { [[ -x "$dir/versitygw" ]]; }

build() {
	in_module versitygw "$module" "v$version" "$module_sum" "$go_mod_sum"
	go build -trimpath -buildvcs=false -ldflags "-s -w" -o "$work/out/" "$module/cmd/versitygw"
	cp "$(go list -m -f '{{.Dir}}' "$module")/LICENSE" "$work/out/LICENSE"
	chmod -R u+w "$work/out"
}

options "$@"

fill 1.25 "Building versitygw $version (a minute or two the first time)"
echo "$dir"
