#!/usr/bin/env bash
# Builds the stock faas-cli on the machine where it will run. See --help.
set -euo pipefail
# shellcheck source=scripts/cache.sh
. "$(dirname "$(readlink -f "$0")")/cache.sh"

version=0.18.12
module=github.com/openfaas/faas-cli
module_version=v0.0.0-20260724145813-c8191b71e7ed
commit=c8191b71e7edf10be3b660ddcaee52c11de79238
# The checksums of the module and its go.mod.
module_sum='h1:vjJG3v8IxGuLeO8d7k4W4XPjR2qW0YjYhmmxcaoTPys='
go_mod_sum='h1:b+cd1UFn9IbUACgVWEC9tXY/ivM25fLQK81G8mKez5Q='

root="$cache/faas-cli"
dir="$root/$version"

usage() {
	cat <<-EOF
		Usage: scripts/faas-cli.sh [--help]

		Builds OpenFaaS' command faas-cli from the Go module proxy into
		  $dir
		and prints the binary's path. Does nothing if it is there already. To build it
		again, remove the directory. The tests use it as people do: they pull the templates,
		make functions from them and deploy these. It is under the MIT licence.

		Environment:
		  XDG_CACHE_HOME  where caches live, default ~/.cache
		  GOPROXY         the Go module proxy, as for go itself

		Example:
		  "\$(scripts/faas-cli.sh)" version
	EOF
}

present() { [[ -x "$dir/faas-cli" ]]; }

build() {
	local source
	in_module faas-cli "$module" "$module_version" "$module_sum" "$go_mod_sum"
	go build -trimpath -buildvcs=false -o "$work/out/faas-cli" -ldflags "-s -w \
		-X $module/version.Version=$version \
		-X $module/version.GitCommit=$commit" "$module"
	source=$(go list -f '{{.Module.Dir}}' "$module")
	cp "$source/LICENSE" "$work/out/LICENSE"
	# The module cache is read-only; its copy has to be removable.
	chmod -R u+w "$work/out"
}

options "$@"

fill 1.24 "Building faas-cli $version (a minute the first time)"
echo "$dir/faas-cli"
