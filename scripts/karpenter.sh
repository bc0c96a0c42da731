#!/usr/bin/env bash
# Builds Karpenter with its provider of kwok's nodes into the user's cache, to test what a node
# autoscaler makes of pods. See --help.
set -euo pipefail

version=1.14.0
module=sigs.k8s.io/karpenter
# The checksums that sum.golang.org holds for the module and its go.mod; the module's go.sum
# has those of its dependencies.
module_sum='h1:+SXlqYNb9FIKRpDgPPRnphVmWbrWLw4tgzKezr372Mc='
go_mod_sum='h1:rrYIUdQk4UvFnjcm1/b3yNSTf1oJCDD4fdmkkMNda14='

root="${XDG_CACHE_HOME:-$HOME/.cache}/faas-infer/karpenter"
dir="$root/$version"

usage() {
	cat <<-EOT
		Usage: scripts/karpenter.sh [--help]

		Builds Karpenter $version for kwok's nodes from the Go module proxy into
		  $dir
		and prints that directory: the program karpenter, and its resource definitions
		in crds. Does nothing if it is there already. To build it again, remove the
		directory.

		Only a test needs it: make test-karpenter.

		Environment:
		  XDG_CACHE_HOME  where caches live, default ~/.cache
		  GOPROXY         the Go module proxy, as for go itself

		Example:
		  ls "\$(scripts/karpenter.sh)/crds"
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

# build fills $1/out. It builds in the module's own directory, whose go.mod counts then.
build() {
	local work=$1 source
	export GOWORK=off CGO_ENABLED=0 GOTOOLCHAIN=local
	mkdir -p "$work/module" "$work/out/crds"
	cd "$work/module"
	printf 'module karpenter-build\n\ngo 1.26.0\n\nrequire %s v%s\n' "$module" "$version" >go.mod
	printf '%s v%s %s\n%s v%s/go.mod %s\n' "$module" "$version" "$module_sum" "$module" "$version" "$go_mod_sum" >go.sum
	GOFLAGS=-mod=mod go mod download "$module"
	source=$(GOFLAGS=-mod=mod go list -m -f '{{.Dir}}' "$module")
	install -m 644 "$source"/pkg/apis/crds/karpenter.sh_*.yaml "$source"/kwok/apis/crds/*.yaml "$work/out/crds"
	cd "$source"
	GOFLAGS=-mod=readonly go build -trimpath -buildvcs=false -o "$work/out/karpenter" ./kwok
}

if [[ ! -x "$dir/karpenter" ]]; then
	command -v go >/dev/null || {
		echo "karpenter.sh: needs Go 1.26 or later on the PATH" >&2
		exit 1
	}
	echo "Building Karpenter $version (some minutes the first time)" >&2
	mkdir -p "$root"
	work=$(mktemp -d "$root/.build-XXXXXX")
	trap 'rm -rf "$work"' EXIT
	(build "$work")
	# Rename within one file system: an interrupted build leaves nothing behind, and of
	# two concurrent builds the first one wins.
	mv -T "$work/out" "$dir" 2>/dev/null || [[ -x "$dir/karpenter" ]] || {
		rm -rf "$dir"
		mv -T "$work/out" "$dir"
	}
fi
echo "$dir"
