package asyfunc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/command/commandtest"
	"github.com/faas-infer/faas-infer/instance/copies"
	"github.com/faas-infer/faas-infer/instance/mutual"
	"github.com/faas-infer/faas-infer/instance/mutual/mutualtest"
	"github.com/faas-infer/faas-infer/instance/upstream"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/model/zoo"
	"github.com/faas-infer/faas-infer/papers/asyfunc/pair"
)

// order tells the body at a socket its shadows and returns the answer.
func order(t *testing.T, socket string, o pair.Order) (status int, text string) {
	t.Helper()
	body, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://instance"+pair.ShadowsPath, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := commandtest.Client(t, socket).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(said)
}

// As in pods: a shadow that starts first waits until a body has prepared the model on the node, and does not
// prepare it itself, for which it has no memory. It takes rows by TCP, and both map one file. The answer keeps
// every bit. With a certificate they pair over TLS, and the shadow takes no other connection.
func TestPairSharesACopy(t *testing.T) {
	t.Run("tcp", func(t *testing.T) { pairByCopy(t, "tcp") })
	t.Run("tls", func(t *testing.T) {
		dir := t.TempDir()
		mutualtest.NewAuthority(t, time.Now().Add(time.Hour)).Issue(t, dir, mutualtest.Certificate{Names: []string{mutual.InstanceName}})
		relay := pairByCopy(t, mutual.Network, "--tls", dir)
		c, err := net.Dial("tcp", relay)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, "FIRL"+strings.Repeat("\x00", 100)); err != nil {
			t.Fatal(err)
		}
		if text, _ := io.ReadAll(c); bytes.Contains(text, []byte("FIRL")) {
			t.Errorf("without TLS, the shadow answers %q", text)
		}
	})
}

// pairByCopy pairs a shadow and a body with further arguments over a network, and returns the address of the
// shadow's relay.
func pairByCopy(t *testing.T, network string, arguments ...string) (relay string) {
	model, dir := commandtest.ZooModel(t, "resnet-20", 1), t.TempDir()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	relay = free.Addr().String()
	free.Close()
	t.Setenv(copies.Env, dir)
	shadow, socket := commandtest.Command(append([]string{"instance", "shadow", "--model", model, "--listen", "unix://" + filepath.Join(t.TempDir(), "s"), "--shadow", "0:6", "--relay", "tcp://" + relay,
		"--max-batch", "8", "--memory", fmt.Sprint(128 << 20)}, arguments...)...), filepath.Join(t.TempDir(), "b")
	ready := make(chan struct{})
	go func() {
		defer close(ready)
		commandtest.UntilReady(t, shadow)
	}()
	t.Setenv(pair.BodyEnv, "1")
	body := commandtest.Command(append([]string{"instance", "--name", "m", "--model", model, "--listen", "unix://" + socket, "--max-batch", "8"}, arguments...)...)
	if log := commandtest.UntilReady(t, body); !strings.Contains(string(log), "prepared the model") {
		t.Errorf("the body says %s", log)
	}
	t.Cleanup(func() {
		_, _ = body.Process.Kill(), body.Wait()
		_, _ = shadow.Process.Kill(), shadow.Wait()
	})
	<-ready
	weights := mapped(t, body.Process.Pid, "weights.bin")
	if part := mapped(t, shadow.Process.Pid, "weights.bin"); weights == "" || part != weights {
		t.Errorf("the body has mapped %q, the shadow %q", weights, part)
	}

	m, err := zoo.Make("resnet-20", 1)
	if err != nil {
		t.Fatal(err)
	}
	const rows = 4
	inputs, err := m.SampleInputs(rows, 1)
	if err != nil {
		t.Fatal(err)
	}
	over := upstream.NewTransport((*mutual.Identity)(nil).Dial, "unix", socket, 4)
	defer over.CloseIdleConnections()
	client := upstream.NewPeer(over, "m")
	infer := func() []byte {
		t.Helper()
		out, err := client.Infer(t.Context(), rows, inputs, []tensor.Info{m.Outputs()[0]})
		if err != nil {
			t.Fatal(err)
		}
		return out[0].Data
	}
	want := bytes.Clone(infer())
	if status, text := order(t, socket, pair.Order{Phi: "0:6", Shadows: []pair.Address{{Network: network, Address: relay}}}); status != http.StatusNoContent {
		t.Fatalf("%d %s", status, text)
	}
	for deadline := time.Now().Add(time.Minute); ; {
		if !bytes.Equal(infer(), want) {
			t.Fatal("with a shadow the answer differs")
		}
		answer, err := commandtest.Client(t, socket).Get("http://instance" + pair.ShadowsPath)
		if err != nil {
			t.Fatal(err)
		}
		var status pair.Status
		err = json.NewDecoder(answer.Body).Decode(&status)
		answer.Body.Close()
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("the shadow computes nothing: %+v, %v", status, err)
		}
		if status.Counted.Rows > 0 {
			return relay
		}
	}
}

// A body that cannot have a copy of its model serves it and refuses shadows. A shadow that cannot waits for no one.
func TestBodyWithoutACopy(t *testing.T) {
	model, socket := commandtest.ZooModel(t, "mnist", 1), filepath.Join(t.TempDir(), "b")
	t.Setenv(copies.Env, filepath.Join(t.TempDir(), "none"))
	t.Setenv(pair.BodyEnv, "1")
	body := commandtest.Command("instance", "--model", model, "--listen", "unix://"+socket)
	commandtest.UntilReady(t, body)
	defer func() { _, _ = body.Process.Kill(), body.Wait() }()
	if status, text := order(t, socket, pair.Order{Phi: "0:1", Shadows: []pair.Address{{Network: "tcp", Address: "127.0.0.1:1"}}}); status != http.StatusBadRequest || !strings.Contains(text, "no prepared copy") {
		t.Errorf("%d %s", status, text)
	}
	if status, text := order(t, socket, pair.Order{}); status != http.StatusNoContent {
		t.Errorf("none: %d %s", status, text)
	}
	c := commandtest.Command("instance", "shadow", "--model", model, "--listen", "unix://"+filepath.Join(t.TempDir(), "s"), "--shadow", "0:1", "--relay", "tcp://127.0.0.1:0")
	if out, err := c.CombinedOutput(); err == nil || !strings.Contains(string(out), os.ErrNotExist.Error()) && !strings.Contains(string(out), "no such file") {
		t.Errorf("%v: %s", err, out)
	}
}

// mapped is the device and inode of a file that a process has mapped, by the file's name, "" for none.
func mapped(t *testing.T, pid int, name string) string {
	t.Helper()
	maps, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "maps"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(maps)) {
		if fields := strings.Fields(line); len(fields) == 6 && filepath.Base(fields[5]) == name {
			return fields[3] + " " + fields[4]
		}
	}
	return ""
}
