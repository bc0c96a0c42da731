#!/usr/bin/env bash
# Fetches the ONNX Runtime library that instances load from its wheel on PyPI, checks it
# and prints its path. Only prints the path if the library is there already. Without cuda it
# is "faas-infer setup", for scripts and tests.
#
#   scripts/onnxruntime.sh            into $XDG_CACHE_HOME/faas-infer
#   scripts/onnxruntime.sh cuda       the build for GPUs, beside it the libraries of CUDA and
#                                     cuDNN that it loads: 1.3 GB, and 2.1 GB on the disk
#   FAAS_INFER_ONNXRUNTIME=/path/libonnxruntime.so scripts/onnxruntime.sh
#                                     uses that library instead
set -euo pipefail

version=1.32.0
# The build for GPUs has releases of its own; this is the newest on PyPI.
cuda_version=1.31.1
# The wheels of the build for GPUs with their checksums, the same as of the images.
cuda_wheels=$(dirname "$(readlink -f "$0")")/../templates/onnx-infer/requirements/cuda.txt

variant=${1:-cpu}
if [[ $variant != cpu && $variant != cuda ]]; then
	echo "The variant is $variant; it must be cpu or cuda." >&2
	exit 1
fi
[[ $variant == cpu ]] || version=$cuda_version

if [[ -n ${FAAS_INFER_ONNXRUNTIME:-} ]]; then
	if [[ ! -r $FAAS_INFER_ONNXRUNTIME ]]; then
		echo "FAAS_INFER_ONNXRUNTIME is $FAAS_INFER_ONNXRUNTIME, which cannot be read; set it to the path of libonnxruntime.so, or unset it" >&2
		exit 1
	fi
	echo "$FAAS_INFER_ONNXRUNTIME"
	exit 0
fi

folder=${XDG_CACHE_HOME:-$HOME/.cache}/faas-infer/onnxruntime/$version
[[ $variant == cpu ]] || folder+=-cuda
library=$folder/libonnxruntime.so
if [[ -r $library ]]; then
	echo "$library"
	exit 0
fi

if [[ $variant == cpu ]]; then
	cd "$(dirname "$(readlink -f "$0")")/.."
	CGO_ENABLED=1 go run -buildvcs=false -trimpath . setup >&2
	echo "$library"
	exit
fi
if [[ $(uname -s)-$(uname -m) != Linux-x86_64 ]]; then
	echo "PyPI has ONNX Runtime for GPUs for Linux on x86_64 only." >&2
	exit 1
fi

mkdir -p "$folder"
work=$(mktemp -d "$folder/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT

# The wheels are only containers for libraries, so this machine's Python version need not
# match them.
download() {
	python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --dest "$work" "$@" >&2
}

# A rename makes two concurrent fetches, or an interrupted one, harmless. The library is
# renamed last: it says that all is there.
install_file() {
	chmod "$1" "$2"
	mv "$2" "$folder/$3"
}

echo "Fetching ONNX Runtime $version for GPUs with CUDA and cuDNN (1.3 GB) from PyPI, under NVIDIA's licences" >&2
platforms=()
for glibc in 2_28 2_27 2_17 2_12 2_5; do platforms+=(--platform "manylinux_${glibc}_x86_64"); done
download --no-cache-dir --python-version 312 "${platforms[@]}" --require-hashes --requirement "$cuda_wheels"
for fetched in "$work"/*.whl; do
	name=$(basename "$fetched")
	python3 -m zipfile -e "$fetched" "$work/wheel"
	rm "$fetched"
	for licence in "$work/wheel/${name%%-*}"-*.dist-info/licenses/*icense* "$work/wheel/onnxruntime/LICENSE"; do
		[[ ! -r $licence ]] || install_file 0644 "$licence" "LICENSE.${name%%-*}.txt"
	done
	for file in "$work"/wheel/nvidia/*/lib/*.so* "$work"/wheel/onnxruntime/capi/libonnxruntime_providers_{shared,cuda}.so; do
		[[ ! -r $file ]] || install_file 0755 "$file" "$(basename "$file")"
	done
done
install_file 0755 "$work/wheel/onnxruntime/capi/libonnxruntime.so.$version" libonnxruntime.so
echo "$library"
