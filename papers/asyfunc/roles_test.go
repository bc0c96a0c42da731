package asyfunc

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/command/commandtest"
	"github.com/faas-infer/faas-infer/command/instances"
	"github.com/faas-infer/faas-infer/instance/mutual"
	"github.com/faas-infer/faas-infer/instance/upstream"
	"github.com/faas-infer/faas-infer/model/tensor"
	"github.com/faas-infer/faas-infer/model/zoo"
	"github.com/faas-infer/faas-infer/papers/asyfunc/pair"
)

// A body and its shadow, each a process: the shadow is killed every while, stopped and woken, and
// its socket taken away, all with batches in flight. Every answer comes, and each is the whole
// model's to the last bit.
func TestShadowIsAProcess(t *testing.T) {
	m, err := zoo.Make("resnet-20", 1)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "model.onnx")
	if err := m.WriteFile(file); err != nil {
		t.Fatal(err)
	}
	out, err := commandtest.Command("instance", "prepare", "--model", file, "--cache", filepath.Join(dir, "cache")).Output()
	if err != nil {
		t.Fatal(err)
	}
	prepared := strings.TrimSpace(string(out))
	socket := func(name string) string { return filepath.Join(dir, name) }
	start := func(role, name string, arguments ...string) *exec.Cmd {
		p := commandtest.Command(append([]string{"instance", role, "--name", "m", "--prepared", prepared, "--max-batch", "8", "--listen", "unix://" + socket(name)}, arguments...)...)
		commandtest.UntilReady(t, p)
		t.Cleanup(func() {
			_ = p.Process.Kill()
			_ = p.Wait() // It was killed.
		})
		return p
	}
	shadow := func() *exec.Cmd {
		return start("shadow", "shadow", "--shadow", "0:6", "--relay", "unix://"+socket("relay"))
	}
	start("body", "body", "--concurrency", "2")
	s := shadow()
	order, err := json.Marshal(pair.Order{Phi: "0:6", Shadows: []pair.Address{{Network: "unix", Address: socket("relay")}}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://instance"+pair.ShadowsPath, bytes.NewReader(order))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := commandtest.Client(t, socket("body")).Do(r)
	if err != nil || answer.StatusCode != http.StatusNoContent {
		t.Fatal(answer, err)
	}
	answer.Body.Close()

	const rows = 4
	inputs, err := m.SampleInputs(rows, 1)
	if err != nil {
		t.Fatal(err)
	}
	over := upstream.NewTransport((*mutual.Identity)(nil).Dial, "unix", socket("body"), 4)
	defer over.CloseIdleConnections()
	client := upstream.NewPeer(over, "m")
	infer := func() (text string) {
		out, err := client.Infer(context.Background(), rows, inputs, []tensor.Info{m.Outputs()[0]})
		if err != nil {
			return err.Error()
		}
		return fmt.Sprintf("%x", out[0].Data)
	}
	var want string
	load := func(during func()) {
		t.Helper()
		stop := make(chan struct{})
		var work sync.WaitGroup
		for range 2 {
			work.Go(func() {
				for {
					if got := infer(); got != want {
						t.Errorf("%.80s, not %.80s", got, want)
						return
					}
					select {
					case <-stop:
						return
					default:
					}
				}
			})
		}
		during()
		close(stop)
		work.Wait()
	}
	if want = infer(); strings.Contains(want, " ") {
		t.Fatal(want)
	}
	// connected waits until rows go to the shadow again.
	connected := func() {
		t.Helper()
		rowsBy := func() string {
			response, err := commandtest.Client(t, socket("body")).Get("http://instance/metrics")
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			var text bytes.Buffer
			_, _ = text.ReadFrom(response.Body) // An empty text has no such line.
			for line := range strings.Lines(text.String()) {
				if strings.HasPrefix(line, `faas_infer_instance_shadow_rows_total{by="shadow"}`) {
					return line
				}
			}
			return ""
		}
		before := rowsBy()
		for deadline := time.Now().Add(time.Minute); rowsBy() == before; {
			if time.Now().After(deadline) {
				t.Fatal("the shadow gets no rows")
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	load(func() {
		for range 3 {
			connected()
			_ = s.Process.Kill()
			_ = s.Wait() // It was killed.
			s = shadow()
		}
		connected()
		if err := s.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Error(err)
		}
		for range 5 {
			infer() // At least one batch finds it stopped.
		}
		if err := s.Process.Signal(syscall.SIGCONT); err != nil {
			t.Error(err)
		}
		connected()
	})
}

func TestPairFlags(t *testing.T) {
	for want, arguments := range map[string][]string{
		"--prepared is missing":   {"body", "--model", "m.onnx"},
		"--relay is missing":      {"shadow", "--prepared", "d", "--shadow", "0:2"},
		"--shadow is missing":     {"shadow", "--prepared", "d", "--relay", "unix:///x"},
		"a pair computes on CPUs": {"body", "--prepared", "d", "--device", "cuda"},
		"unknown flag: --relay":   {"body", "--prepared", "d", "--relay", "unix:///x"},
	} {
		if _, err := execute(t, append([]string{"instance"}, arguments...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, not %q", arguments, err, want)
		}
	}
}

// A shadow is started with its part, a body on one machine as such. In a pod neither is started by a subcommand:
// an image that is older than the provider would refuse it.
func TestArguments(t *testing.T) {
	shadow, body := cluster.InstanceSpec{Role: cluster.Shadow, Part: "0:18,20:22", Body: "b"}, cluster.InstanceSpec{Paired: true}
	for _, c := range []struct {
		spec         cluster.InstanceSpec
		listen, want string
	}{
		{shadow, "unix:///run/s", "instance shadow --shadow 0:18,20:22 --relay unix:///run/s.relay"},
		{shadow, "tcp://:8080", "instance --shadow 0:18,20:22 --relay tcp://:8090"},
		{body, "unix:///run/s", "instance body --concurrency 2"},
		{body, "tcp://:8080", "instance"},
		{cluster.InstanceSpec{}, "unix:///run/s", "instance"},
	} {
		if got := strings.Join(instances.Arguments(c.spec, c.listen), " "); got != c.want {
			t.Errorf("%+v at %s: %q", c.spec, c.listen, got)
		}
	}
}
