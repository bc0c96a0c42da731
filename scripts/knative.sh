#!/usr/bin/env bash
# Builds Knative Serving into the user's cache, to measure it beside faas-infer. See --help.
set -euo pipefail
# shellcheck source=scripts/cache.sh
. "$(dirname "$(readlink -f "$0")")/cache.sh"

version=0.42.2
module=knative.dev/serving
# The checksums of the module and its go.mod; the module's go.sum has those of its dependencies.
module_sum='h1:yKieg3MeNvpVz+4JJPbvmpee3v3LK3zO5h5HJBtzaNk='
go_mod_sum='h1:3cgU8/864RcqA0ZPrc3jFcmS3uJL/mOlUZiYsXonwaE='

programs=(activator autoscaler controller queue webhook)

root="$cache/knative"
dir="$root/$version"

usage() {
	cat <<-EOT
		Usage: scripts/knative.sh [--help]

		Builds Knative Serving $version from the Go module proxy into
		  $dir
		and prints that directory. It holds
		  bin/       ${programs[*]}
		  crds.yaml  Knative's resource definitions
		  core.yaml  its other objects, in the order in which they can be applied; their
		             images have the names of Knative's sources, ko://$module/cmd/NAME
		The objects come from the modules of Knative, and are not part of faas-infer. Does
		nothing if the directory is there already. To build it again, remove it.

		Only a benchmark needs it: faas-infer-lab bench knative.

		Environment:
		  XDG_CACHE_HOME  where caches live, default ~/.cache
		  GOPROXY         the Go module proxy, as for go itself

		Example:
		  ls "\$(scripts/knative.sh)/bin"
	EOT
}

present() { [[ -x "$dir/bin/webhook" && -s "$dir/crds.yaml" && -s "$dir/core.yaml" ]]; }

# objects prints the files $* as one stream of YAML documents.
objects() {
	local file
	for file in "$@"; do
		echo ---
		cat "$file"
	done
}

# source_of prints the directory of the module $1, as the module in the working directory needs it.
source_of() { go list -mod=readonly -m -f '{{.Dir}}' "$1"; }

# build builds in the module's own directory, whose go.mod counts then. Links are no part of a
# module, so what Knative's sources link to comes from the modules that own it.
build() {
	local core networking caching name paths=()
	in_module knative "$module" "v$version" "$module_sum" "$go_mod_sum"
	go mod download "$module"
	cd "$(go list -m -f '{{.Dir}}' "$module")"
	go mod download knative.dev/networking knative.dev/caching
	core=$PWD/config/core networking=$(source_of knative.dev/networking) caching=$(source_of knative.dev/caching)
	objects "$core"/300-resources/*.yaml "$networking"/config/{certificate,domain-claim,ingress,serverlessservice}.yaml \
		"$caching/config/image.yaml" >"$work/out/crds.yaml"
	objects "$core/100-namespace.yaml" "$core"/200-roles/*.yaml "$core"/200-serviceaccount.yaml \
		"$core"/configmaps/*.yaml "$networking/config/config-network.yaml" "$core"/deployments/*.yaml \
		"$core"/webhooks/*.yaml "$core/300-knativecertificate.yaml" "$core/999-cache.yaml" >"$work/out/core.yaml"
	for name in "${programs[@]}"; do paths+=("./cmd/$name"); done
	mkdir "$work/out/bin"
	GOFLAGS=-mod=readonly go build -trimpath -buildvcs=false -ldflags '-s -w' -o "$work/out/bin/" "${paths[@]}"
}

options "$@"
fill 1.24 "Building Knative Serving $version (5 minutes the first time)"
echo "$dir"
