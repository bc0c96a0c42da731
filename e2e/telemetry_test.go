package e2e

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/faas-infer/faas-infer/instance/python/environment"
)

// alone runs a command in a network of its own, whose only way out is an interface that leads nowhere. The resolver
// is on that way, too. Nobody reads from the interface, so the kernel counts all its packets as dropped: the last line
// of the output is their number.
const alone = `set -e
mount --make-rprivate /
mount --bind "$1" /etc/resolv.conf
if test -e /proc/sys/net/ipv6; then echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6; fi # The kernel itself sends there.
ip link set lo up
ip tuntap add out mode tun
ip address add 10.9.8.1/24 dev out
ip link set out up
ip route add default dev out
shift
code=0
"$@" || code=$?
awk '$1 == "out:" { print; print $11 + $13 }' /proc/net/dev
exit $code`

const anOnnxHandler = `
import numpy as np
import onnxruntime

inputs = {"x": ("float32", [1])}
outputs = {"y": ("float32", [1])}


def load(path):
    global session
    session = onnxruntime.InferenceSession(path)


def handle(batch):
    x = session.get_inputs()[0]
    (out,) = session.run(None, {x.name: np.zeros([d if isinstance(d, int) else 1 for d in x.shape], "float32")})
    return [{"y": out.reshape(1, -1)[:, :1] + request["x"]} for request in batch]
`

const anOnnxStack = `version: 1.0
provider: {name: openfaas, gateway: "http://127.0.0.1:8080"}
functions:
  identity: {lang: onnx-infer, handler: ./identity, image: "identity:latest", annotations: {com.openfaas.slo.latency: 10s}}
  handler: {lang: python-infer, handler: ./handler, image: "handler:latest", annotations: {com.openfaas.slo.latency: 30s}}
`

const aForest = `
import sys, joblib, numpy
from sklearn.ensemble import RandomForestClassifier
x = numpy.random.default_rng(1).random((200, 4), dtype="float32")
joblib.dump(RandomForestClassifier(5).fit(x, x[:, 0] > 0.5), sys.argv[1])
`

// No instance, handler or tool sends anything to anybody, nor keeps what ONNX Runtime would report.
func TestNothingIsReported(t *testing.T) {
	if onCluster != nil {
		t.Skip("a cluster's pods are checked by the same programs on this machine")
	}
	if _, err := exec.LookPath("ip"); os.Geteuid() != 0 || err != nil {
		t.Skip("NOT CHECKED: that nothing is reported. It needs root and the program ip.")
	}
	providerTests.takeHere(t)
	p := newPlace(t)
	home := t.TempDir()
	silent := &silence{home: home, resolv: filepath.Join(home, "resolv.conf")}
	write(t, "nameserver 10.9.8.53\noptions timeout:1 attempts:1\n", 0o644, silent.resolv)
	cache, err := os.UserCacheDir()
	if err == nil {
		err = os.MkdirAll(filepath.Join(home, "cache"), 0o755)
	}
	if err == nil {
		err = os.Symlink(filepath.Join(cache, "faas-infer"), filepath.Join(home, "cache", "faas-infer"))
	}
	if err != nil {
		t.Fatal(err)
	}
	if silent.packets(t, "sh", "-c", "getent hosts faas-infer.example || true") == 0 {
		t.Fatal("a lookup sends no packet, so this test sees nothing")
	}

	file := p.bundle(t, "identity:latest", zooModel(t, "identity"))
	p.pythonBundle(t, "handler", anOnnxHandler, "requirements.txt", "onnxruntime==1.32.0\n")
	dir := filepath.Join(p.bundles, "handler", "latest")
	write(t, "engine: python\nmodel: model.onnx\nhandler: handler.py\nrequirements: requirements.txt\n", 0o644, dir, "bundle.yaml")
	if err := zooModel(t, "identity").WriteFile(filepath.Join(dir, "model.onnx")); err != nil {
		t.Fatal(err)
	}
	if _, err := environment.Ensure(t.Context(), "python", filepath.Join(dir, "requirements.txt")); err != nil {
		t.Fatal(err)
	}
	tabular, err := environment.Ensure(t.Context(), "convert-tabular", "")
	if err != nil {
		t.Fatal(err)
	}
	forest := filepath.Join(p.dir, "forest.joblib")
	if text, err := exec.CommandContext(t.Context(), tabular.Python, "-c", aForest, forest).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	silent.python = tabular.Python
	stack := filepath.Join(p.dir, "stack.yml")
	write(t, anOnnxStack, 0o644, stack)
	for what, arguments := range map[string][]string{
		"functions": {"up", "--demo", "--json", "--duration", "3s", "--rate", "10", "--listen", "127.0.0.1:0",
			"--gpus", "none", "--stack", stack, "--state", p.state, "--bundles", p.bundles, "--prepared", suite.prepared},
		"check":   {"model", "check", file, "--slo", "5m", "--prepared", suite.prepared},
		"convert": {"model", "convert", forest, filepath.Join(p.dir, "forest.onnx"), "--trust"},
	} {
		t.Run(what, func(t *testing.T) {
			if n := silent.packets(t, append([]string{suite.binary}, arguments...)...); n > 0 {
				t.Errorf("it has sent %d packets", n)
			}
			silent.nothingKept(t)
		})
	}
}

// silence is a network that leads nowhere, an empty home, and a Python that does not need another one.
type silence struct{ home, resolv, python string }

// packets runs a command there and returns how many packets left it.
func (s *silence) packets(t *testing.T, arguments ...string) int {
	t.Helper()
	c := exec.CommandContext(t.Context(), "sh", append([]string{"-c", alone, "sh", s.resolv}, arguments...)...)
	c.Env = append(os.Environ(), "HOME="+s.home, "XDG_CACHE_HOME="+filepath.Join(s.home, "cache"), "ORT_DISABLE_TELEMETRY=", "FAAS_INFER_ONNXRUNTIME="+suite.library,
		environment.ProgramEnv+"="+s.python)
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS, Setpgid: true, Pdeathsig: syscall.SIGKILL}
	var out, log bytes.Buffer
	c.Stdout, c.Stderr = &out, &log
	err := (*network)(nil).start(c)
	if err == nil {
		err = c.Wait()
	}
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, out.String(), log.String())
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	n, err := strconv.Atoi(lines[len(lines)-1])
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	return n
}

// nothingKept fails if anything but faas-infer's own was written into the home.
func (s *silence) nothingKept(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir(s.home, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && path != s.resolv && !strings.Contains(path[len(s.home):], "/faas-infer") {
			t.Errorf("it has written %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
