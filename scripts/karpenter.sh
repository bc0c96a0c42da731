#!/usr/bin/env bash
# Builds Karpenter with its provider of kwok's nodes into the user's cache, to test what a node
# autoscaler makes of pods. See --help.
set -euo pipefail
# shellcheck source=scripts/cache.sh
. "$(dirname "$(readlink -f "$0")")/cache.sh"

version=1.14.0
module=sigs.k8s.io/karpenter
# The checksums that sum.golang.org holds for the module and its go.mod; the module's go.sum
# has those of its dependencies.
module_sum='h1:+SXlqYNb9FIKRpDgPPRnphVmWbrWLw4tgzKezr372Mc='
go_mod_sum='h1:rrYIUdQk4UvFnjcm1/b3yNSTf1oJCDD4fdmkkMNda14='

root="$cache/karpenter"
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

present() { [[ -x "$dir/karpenter" ]]; }

# build builds in the module's own directory, whose go.mod counts then.
build() {
	local source
	mkdir "$work/out/crds"
	in_module karpenter "$module" "v$version" "$module_sum" "$go_mod_sum"
	go mod download "$module"
	source=$(go list -m -f '{{.Dir}}' "$module")
	install -m 644 "$source"/pkg/apis/crds/karpenter.sh_*.yaml "$source"/kwok/apis/crds/*.yaml "$work/out/crds"
	cd "$source"
	GOFLAGS=-mod=readonly go build -trimpath -buildvcs=false -o "$work/out/karpenter" ./kwok
}

options "$@"
fill 1.26 "Building Karpenter $version (some minutes the first time)"
echo "$dir"
