#!/usr/bin/env bash
# Tests the program for arm64 on a machine of another architecture. See --help.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
# shellcheck source=scripts/cache.sh
. scripts/cache.sh

usage() {
	cat <<-EOF
		Usage: scripts/test-arm64.sh

		Builds faas-infer for arm64 and runs it under qemu's emulation of a user's program: tests of
		packages that decide and that parse, "model check", and a first function, from "up" to an
		answer. It needs a compiler for arm64 and qemu, and user namespaces, in which it lets the
		kernel start programs for arm64.
	EOF
}
options "$@"

missing=()
command -v aarch64-linux-gnu-gcc >/dev/null || missing+=(gcc-aarch64-linux-gnu)
[[ -e /usr/aarch64-linux-gnu/lib/libc.so.6 ]] || missing+=(libc6-dev-arm64-cross)
command -v qemu-aarch64-static >/dev/null || missing+=(qemu-user-static)
((${#missing[@]} == 0)) || {
	echo "test-arm64.sh: these packages are missing: apt-get install ${missing[*]}" >&2
	exit 1
}

# In a user namespace the kernel has a list of its own of what runs programs of other kinds.
if [[ -z ${FAAS_INFER_INSIDE-} ]]; then
	exec env FAAS_INFER_INSIDE=1 unshare --user --map-root-user --mount --pid --fork --kill-child --mount-proc "$0"
fi
mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
cat /usr/lib/binfmt.d/qemu-aarch64.conf >/proc/sys/fs/binfmt_misc/register
work=$(mktemp -d)
up=
finish() {
	[[ -z $up ]] || {
		kill "$up" 2>/dev/null || true
		wait "$up" || true
	}
	rm -rf "$work"
}
trap finish EXIT
# The libraries for arm64 are where programs for arm64 look for them. QEMU_LD_PREFIX would not do: an instance does
# not inherit the provider's environment.
mkdir "$work/lib"
ln -s /usr/aarch64-linux-gnu/lib "$work/lib/aarch64-linux-gnu"
ln -s /usr/aarch64-linux-gnu/lib/ld-linux-aarch64.so.1 "$work/lib"
mount -t overlay -o "lowerdir=$work/lib:/usr/lib" overlay /usr/lib
# ONNX Runtime crashes if /proc/cpuinfo is that of another architecture. Before version 9, qemu shows the machine's.
for ((i = 0; i < $(nproc); i++)); do
	printf 'processor\t: %d\nBogoMIPS\t: 100.00\nFeatures\t: fp asimd aes pmull sha1 sha2 crc32 cpuid\n' "$i"
	printf 'CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x0\nCPU part\t: 0xd08\nCPU revision\t: 3\n\n'
done >"$work/cpuinfo"
mount --bind "$work/cpuinfo" /proc/cpuinfo

library=$(go run -buildvcs=false -trimpath . setup --architecture arm64)
library=${library##* }
export GOFLAGS=-buildvcs=false GOARCH=arm64
CC=aarch64-linux-gnu-gcc CGO_ENABLED=1 go build -trimpath -o "$work/faas-infer" .
export FAAS_INFER_ONNXRUNTIME=$library XDG_STATE_HOME=$work/state XDG_CACHE_HOME=$work/cache

echo "The program"
"$work/faas-infer" version

echo "A first function"
mkdir "$work/functions"
cat >"$work/functions/stack.yml" <<-EOF
	version: 1.0
	provider: {name: openfaas}
	functions:
	  identity:
	    image: identity:latest
	    annotations:
	      com.openfaas.slo.latency: 20s
	      com.openfaas.infer.max-batch: "2"
	  echo:
	    image: functions/alpine:latest
	    fprocess: cat
EOF
address=127.0.0.1:${FAAS_INFER_PORT:-18964}
# qemu 7.2 answers clone with CLONE_NEWPID with EINVAL, but lets unshare through. So the provider would think that it
# can give instances private file systems. It runs without the right to, as without root.
(cd "$work/functions" && exec unshare --user --map-user=1000 --map-group=1000 "$work/faas-infer" up --listen "$address" --nats-listen off >"$work/up.log" 2>&1) &
up=$!
ask() { curl -sS --fail-with-body --retry 60 --retry-all-errors --retry-delay 2 --max-time 120 "$@"; }
{
	ask -d hello "http://$address/function/echo" | grep -x hello
	ask -d '{"instances": [[1, 2, 3]]}' "http://$address/function/identity/v1/models/identity:predict" | grep predictions
} || {
	cat "$work/up.log" >&2
	exit 1
}
kill "$up"
wait "$up"
up=

echo "A model, which takes a minute"
"$work/faas-infer" model make mnist --out "$work/mnist.onnx"
"$work/faas-infer" model check "$work/mnist.onnx"

echo "Packages"
unset FAAS_INFER_ONNXRUNTIME XDG_STATE_HOME XDG_CACHE_HOME
CGO_ENABLED=0 go test -short -vet=off -timeout 20m ./batching ./coldstart ./variant ./scaling/capacity ./profiler/cop \
	./model/tensor ./model/shape ./instance/frame ./instance/protocol ./instance/tensorjson ./provider/annotation \
	./cluster ./gpu ./health
echo "All tests for arm64 passed."
