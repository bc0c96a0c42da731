#!/usr/bin/env bash
# Fetches the ONNX Runtime library that instances load from its wheel on PyPI, checks it
# and prints its path. Only prints the path if the library is there already.
#
#   scripts/onnxruntime.sh            into $XDG_CACHE_HOME/faas-infer
#   FAAS_INFER_ONNXRUNTIME=/path/libonnxruntime.so scripts/onnxruntime.sh
#                                     uses that library instead
set -euo pipefail

version=1.31.1
wheel=onnxruntime-$version-cp311-cp311-manylinux_2_28_x86_64.whl
wheel_sha256=5752bd508126ae7c49894d3b9d2e83f0c3d487319246d04c444b393308d7ad7f
library_sha256=fc44112fbe06d7d689c57e11d3862031f64711007e4ee020f8eed5185fd2c1d3

if [[ -n ${FAAS_INFER_ONNXRUNTIME:-} ]]; then
	if [[ ! -r $FAAS_INFER_ONNXRUNTIME ]]; then
		echo "FAAS_INFER_ONNXRUNTIME is $FAAS_INFER_ONNXRUNTIME, which cannot be read; set it to the path of libonnxruntime.so, or unset it" >&2
		exit 1
	fi
	echo "$FAAS_INFER_ONNXRUNTIME"
	exit 0
fi

folder=${XDG_CACHE_HOME:-$HOME/.cache}/faas-infer/onnxruntime/$version
library=$folder/libonnxruntime.so
if [[ -r $library ]]; then
	echo "$library"
	exit 0
fi

if [[ $(uname -s)-$(uname -m) != Linux-x86_64 ]]; then
	echo "ONNX Runtime $version is tested on Linux on x86_64 only; set FAAS_INFER_ONNXRUNTIME to the path of your own library." >&2
	exit 1
fi

mkdir -p "$folder"
work=$(mktemp -d "$folder/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT

echo "Fetching ONNX Runtime $version (24 MB) from PyPI" >&2
# The wheel is only a container for the library, so this machine's Python version need
# not match it.
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
	--python-version 311 --platform manylinux_2_28_x86_64 --dest "$work" "onnxruntime==$version" >&2
echo "$wheel_sha256  $work/$wheel" | sha256sum --check --quiet >&2
python3 -m zipfile -e "$work/$wheel" "$work/wheel"
fetched=$work/wheel/onnxruntime/capi/libonnxruntime.so.$version
echo "$library_sha256  $fetched" | sha256sum --check --quiet >&2
# A rename makes two concurrent fetches, or an interrupted one, harmless.
chmod 0755 "$fetched"
mv "$fetched" "$library"
echo "$library"
