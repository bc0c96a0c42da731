#!/usr/bin/env bash
# Builds the stock faas-cli on the machine where it will run. See --help.
set -euo pipefail

version=0.18.12
module=github.com/openfaas/faas-cli
module_version=v0.0.0-20260724145813-c8191b71e7ed
commit=c8191b71e7edf10be3b660ddcaee52c11de79238
# The checksums that sum.golang.org holds for the module and its go.mod; go
# itself checks the dependencies against that log.
module_sum='h1:vjJG3v8IxGuLeO8d7k4W4XPjR2qW0YjYhmmxcaoTPys='
go_mod_sum='h1:b+cd1UFn9IbUACgVWEC9tXY/ivM25fLQK81G8mKez5Q='

root="${XDG_CACHE_HOME:-$HOME/.cache}/faas-infer/faas-cli"
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

# build makes a throw-away module in the directory $1 and builds the files to keep:
# out/faas-cli and out/LICENSE.
build() {
	local work=$1 source
	export GOFLAGS=-mod=mod GOWORK=off CGO_ENABLED=0 GOTOOLCHAIN=local
	mkdir "$work/module" "$work/out"
	cd "$work/module"
	printf 'module faas-cli-build\n\ngo 1.24\n\nrequire %s %s\n' "$module" "$module_version" >go.mod
	printf '%s %s %s\n%s %s/go.mod %s\n' "$module" "$module_version" "$module_sum" \
		"$module" "$module_version" "$go_mod_sum" >go.sum
	go build -trimpath -buildvcs=false -o "$work/out/faas-cli" -ldflags "-s -w \
		-X $module/version.Version=$version \
		-X $module/version.GitCommit=$commit" "$module"
	source=$(go list -f '{{.Module.Dir}}' "$module")
	cp "$source/LICENSE" "$work/out/LICENSE"
	# The module cache is read-only; its copy has to be removable.
	chmod -R u+w "$work/out"
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

if [[ ! -x "$dir/faas-cli" ]]; then
	command -v go >/dev/null || {
		echo "faas-cli.sh: needs Go 1.24 or later on the PATH" >&2
		exit 1
	}
	echo "Building faas-cli $version (a minute the first time)" >&2
	mkdir -p "$root"
	work=$(mktemp -d "$root/.build-XXXXXX")
	trap 'rm -rf "$work"' EXIT
	(build "$work")
	# Rename within one file system: an interrupted build leaves nothing behind, and of
	# two concurrent builds the first one wins.
	mv -T "$work/out" "$dir" 2>/dev/null || [[ -x "$dir/faas-cli" ]] || {
		rm -rf "$dir"
		mv -T "$work/out" "$dir"
	}
fi
echo "$dir/faas-cli"
