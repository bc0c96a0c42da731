#!/usr/bin/env bash
# Fetches the definitions of the objects that the chart makes for others. See --help.
set -euo pipefail
# shellcheck source=scripts/cache.sh
. "$(dirname "$(readlink -f "$0")")/cache.sh"

# module, version, checksum in sum.golang.org, files in the module
parts=(
	"github.com/prometheus-operator/prometheus-operator 0.85.0 h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s= example/prometheus-operator-crd/monitoring.coreos.com_{podmonitors,servicemonitors,prometheusrules}.yaml"
	"sigs.k8s.io/gateway-api 1.6.3 h1:lKpJa5bGlraC/QeACvCpsHLdmO6y0iKfzVl6gzaFEYc= config/crd/standard/gateway.networking.k8s.io_{backendtlspolicies,gatewayclasses,gateways,grpcroutes,httproutes,referencegrants}.yaml"
	"github.com/cert-manager/cert-manager 1.21.2 h1:UWgoYM+KLNtRlqmoWOKjKBOBUPVHeepQ6/ac3ERJW68= deploy/crds/cert-manager.io_{certificates,issuers}.yaml"
)
version=$(for part in "${parts[@]}"; do
	read -r _ number _ <<<"$part"
	echo "$number"
done | paste -sd-)

root="$cache/definitions"
dir="$root/$version"

usage() {
	cat <<-EOF
		Usage: scripts/definitions.sh [--help]

		Fetches the custom resource definitions of the Prometheus Operator, the Gateway API and
		cert-manager from their modules on the Go module proxy into
		  $dir
		and prints that path. Does nothing if it is there already. To fetch them again, remove
		the directory. All three are under the Apache License 2.0; none is shipped.

		Only tests need them: go test -run TestChartApplies ./e2e/kubernetes/install, and
		make test-ingress.

		Environment:
		  XDG_CACHE_HOME  where caches live, default ~/.cache
		  GOPROXY         the Go module proxy, as for go itself

		Example:
		  kubectl apply --server-side -f "\$(scripts/definitions.sh)"
	EOF
}

present() { [[ -f "$dir/cert-manager.io_issuers.yaml" && -f "$dir/gateway.networking.k8s.io_gateways.yaml" ]]; }

build() {
	local part module number sum files file source
	for part in "${parts[@]}"; do
		read -r module number sum files <<<"$part"
		(
			in_module "${module##*/}" "$module" "v$number" "$sum"
			source=$(go mod download -json "$module" | sed -n 's/^\t"Dir": "\(.*\)",\{0,1\}$/\1/p')
			for file in $(eval echo "$files"); do
				install -m 644 "$source/$file" "$work/out/"
			done
		)
	done
}

options "$@"
fill 1.24 "Fetching the definitions of the Prometheus Operator, the Gateway API and cert-manager"
echo "$dir"
