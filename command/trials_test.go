package command

import (
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/command/commandtest"
	"github.com/faas-infer/faas-infer/command/profile"
	"github.com/faas-infer/faas-infer/instance/mutual"
)

// The provider takes what an instance has measured, and refuses what is no measurement.
func TestTrials(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "trial")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	answer, status := "", http.StatusOK
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.RequestURI() != profile.TrialQuery(8, 250*time.Millisecond) {
			t.Errorf("asked for %s %s", r.Method, r.URL)
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(answer))
	})}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	trials := Trials{Dial: (*mutual.Identity)(nil).Dial}
	for _, c := range []struct {
		status int
		answer string
		says   string
	}{
		{http.StatusOK, `{"memory": 7, "measurements": [{"batch": 1, "threads": 1, "median_us": 5}]}`, ""},
		{http.StatusOK, `{"measurements": []}`, "nothing"},
		{http.StatusOK, `<html>`, "read what it measured"},
		{http.StatusInternalServerError, "CUDA out of memory", "CUDA out of memory"},
	} {
		status, answer = c.status, c.answer
		p, err := trials.Measure(t.Context(), cluster.Instance{Network: "unix", Address: socket}, 8, 250*time.Millisecond)
		switch {
		case c.says == "" && (err != nil || p.Memory != 7 || len(p.Measurements) != 1):
			t.Errorf("%+v, %v", p, err)
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%s: %v", c.answer, err)
		}
	}
	if manifest := pythonBundle(t, doubling); !trials.Takes(manifest) || trials.Takes("model.onnx") {
		t.Error("which models are measured so")
	}
	flags := &ProviderFlags{}
	if args := strings.Join(flags.InstanceArguments(cluster.InstanceSpec{Function: "f.n", Role: cluster.Trial}, "unix:///s"), " "); !strings.Contains(args, "--trial") {
		t.Error(args)
	}
}

// An instance of a bundle in Python measures its own process, and serves on.
func TestTrialOfWhatPythonRuns(t *testing.T) {
	manifest, socket := pythonBundle(t, doubling), filepath.Join(t.TempDir(), "trial")
	prepared, err := execute(t, "instance", "prepare", "--model", manifest, "--cache", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	serve := commandtest.Command("instance", "--model", manifest, "--prepared", strings.TrimSpace(prepared), "--trial", "--max-batch", "4", "--listen", "unix://"+socket)
	commandtest.UntilReady(t, serve)
	trials, in := Trials{Dial: (*mutual.Identity)(nil).Dial}, cluster.Instance{Network: "unix", Address: socket}
	for range 2 {
		p, err := trials.Measure(t.Context(), in, 4, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if p.MaxBatch() != 4 || len(p.Measurements) != 3 || p.Memory < 1<<20 || p.Payloads == nil {
			t.Errorf("%+v", p)
		}
	}
	if _, err := callInstance(t.Context(), trials.Dial, in, http.MethodGet, "/_/ready", http.NoBody, 10); err != nil {
		t.Error(err)
	}
}
