#!/usr/bin/env bash
# Builds the container images of faas-infer itself. See --help.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
	cat <<-EOF
		Usage: scripts/image.sh [--push PREFIX] [--tag TAG] [--out DIR]

		Builds the images of faas-infer itself, without a container engine, from Debian's
		packages, which apt-get downloads, and from the programs that it builds here:
		  base        the base of functions' images
		  base-shell  the same with a shell and the usual commands, for scripts
		  base-python the same with Debian's Python, for models that run in it
		  provider    the provider on Kubernetes, and the agent of nodes with GPUs
		It writes each as a file in DIR, an OCI image layout in a tar, which ctr, podman and
		docker load. The same sources and packages make the same files.

		  --push PREFIX  also push them to a registry, as PREFIX/base:TAG,
		                 PREFIX/base:TAG-shell, PREFIX/base:TAG-python and
		                 PREFIX/provider:TAG, with the credentials of docker's or podman's
		                 login
		  --tag TAG      their tag, default latest
		  --out DIR      directory of the files, default dist

		Example:
		  scripts/image.sh --push registry.example.com/faas-infer --tag v1
	EOF
}

prefix='' tag=latest out=dist
while (($#)); do
	case "$1" in
	-h | --help)
		usage
		exit
		;;
	--push | --tag | --out)
		[[ -n ${2-} ]] || {
			echo "image.sh: $1 needs a value" >&2
			exit 2
		}
		case "$1" in
		--push) prefix=${2%/} ;;
		--tag) tag=$2 ;;
		--out) out=$2 ;;
		esac
		shift 2
		;;
	*)
		usage >&2
		exit 2
		;;
	esac
done

library=$(scripts/onnxruntime.sh)
make --no-print-directory build
commit=$(git describe --always --dirty --abbrev=12 2>/dev/null || echo unknown)
echo "Building bin/faas-infer-kubernetes" >&2
CGO_ENABLED=1 go build -buildvcs=false -trimpath -ldflags "-s -w -X github.com/faas-infer/faas-infer/command/report.Commit=$commit" \
	-o bin/faas-infer-kubernetes ./command/kubernetes/program

image() { bin/faas-infer-kubernetes image "$@"; }
mkdir -p "$out"
image base --onnxruntime "$library" --name "faas-infer/base:$tag" --tar "$out/base.tar"
image base --onnxruntime "$library" --name "faas-infer/base:$tag-shell" --shell --tar "$out/base-shell.tar"
image base --onnxruntime "$library" --name "faas-infer/base:$tag-python" --python --tar "$out/base-python.tar"
image provider --base "$out/base-python.tar" --name "faas-infer/provider:$tag" --tar "$out/provider.tar"
[[ -n $prefix ]] || exit 0
image push "$out/base.tar" "$prefix/base:$tag"
image push "$out/base-shell.tar" "$prefix/base:$tag-shell"
image push "$out/base-python.tar" "$prefix/base:$tag-python"
image push "$out/provider.tar" "$prefix/provider:$tag"
