#!/usr/bin/env bash
# Builds the stock OpenFaaS gateway on the machine where it will run.
# See --help.
set -euo pipefail
# shellcheck source=scripts/cache.sh
. "$(dirname "$(readlink -f "$0")")/cache.sh"

version=0.27.14
module=github.com/openfaas/faas/gateway
module_version=v0.0.0-20260702090804-8d803bf9e265
commit=8d803bf9e265
# The checksums of the module and its go.mod.
module_sum='h1:Co831gBP9f1x+8a31QuiqI+FH/zNB/gNjfKu2D29Zqo='
go_mod_sum='h1:1LSemRHcaRpx/CYydyaElHmbV0IHKez9izCtP4tTrno='

root="$cache/gateway"
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

build() {
	local source
	in_module gateway "$module" "$module_version" "$module_sum" "$go_mod_sum"
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

options "$@"

fill 1.24 "Building the OpenFaaS gateway $version (half a minute the first time); OpenFaaS Community Edition terms apply to it: https://github.com/openfaas/faas/blob/master/EULA.md"
echo "$dir/gateway"
