#!/usr/bin/env bash
# Builds the stock OpenFaaS gateway on the machine where it will run.
# See --help.
set -euo pipefail

version=0.27.14
module=github.com/openfaas/faas/gateway
module_version=v0.0.0-20260702090804-8d803bf9e265
commit=8d803bf9e265
# The checksums that sum.golang.org holds for the module and its go.mod; go
# itself checks the dependencies against that log.
module_sum='h1:Co831gBP9f1x+8a31QuiqI+FH/zNB/gNjfKu2D29Zqo='
go_mod_sum='h1:1LSemRHcaRpx/CYydyaElHmbV0IHKez9izCtP4tTrno='

root="${XDG_CACHE_HOME:-$HOME/.cache}/faas-infer/gateway"
dir="$root/$version"

usage() {
	cat <<-EOF
		Usage: scripts/gateway.sh [--help]

		Builds the stock OpenFaaS gateway $version from the Go module proxy into
		  $dir
		(the binary "gateway" and the web interface "assets/", which it serves relative
		to its working directory) and prints the binary's path. Does nothing if it is
		there already. To build it again, remove the directory.

		The gateway is not part of faas-infer. It is under the OpenFaaS Community Edition
		EULA, which limits commercial use: https://github.com/openfaas/faas/blob/master/EULA.md

		It listens on ports 8080 (API and web interface) and 8082 (its own metrics) of
		all interfaces; neither can be changed.

		Environment:
		  XDG_CACHE_HOME  where caches live, default ~/.cache
		  GOPROXY         the Go module proxy, as for go itself

		Example:
		  scripts/gateway.sh && cd "$dir" &&
		    functions_provider_url=http://127.0.0.1:8081/ scale_from_zero=false \\
		    faas_prometheus_host=127.0.0.1 faas_prometheus_port=8081 ./gateway
	EOF
}

present() { [[ -x "$dir/gateway" && -f "$dir/assets/index.html" ]]; }

# build makes a throw-away module in the directory $1 and builds the files to keep:
# out/gateway and out/assets.
build() {
	local work=$1 source
	export GOFLAGS=-mod=mod GOWORK=off CGO_ENABLED=0 GOTOOLCHAIN=local
	mkdir "$work/module" "$work/out"
	cd "$work/module"
	printf 'module gateway-build\n\ngo 1.24\n\nrequire %s %s\n' "$module" "$module_version" >go.mod
	printf '%s %s %s\n%s %s/go.mod %s\n' "$module" "$module_version" "$module_sum" \
		"$module" "$module_version" "$go_mod_sum" >go.sum
	go build -trimpath -buildvcs=false -o "$work/out/gateway" -ldflags "-s -w \
		-X $module/version.Version=$version \
		-X $module/version.GitCommitSHA=$commit \
		-X $module/types.Arch=$(go env GOARCH)" "$module"
	source=$(go list -f '{{.Module.Dir}}' "$module")
	cp -R "$source/assets" "$work/out/assets"
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

if ! present; then
	command -v go >/dev/null || {
		echo "gateway.sh: needs Go 1.24 or later on the PATH" >&2
		exit 1
	}
	echo "Building the OpenFaaS gateway $version (half a minute the first time); OpenFaaS Community Edition terms apply to it: https://github.com/openfaas/faas/blob/master/EULA.md" >&2
	mkdir -p "$root"
	work=$(mktemp -d "$root/.build-XXXXXX")
	trap 'rm -rf "$work"' EXIT
	(build "$work")
	# Rename within one file system: an interrupted build leaves nothing behind, and of
	# two concurrent builds the first one wins.
	mv -T "$work/out" "$dir" 2>/dev/null || present || {
		rm -rf "$dir"
		mv -T "$work/out" "$dir"
	}
fi
echo "$dir/gateway"
