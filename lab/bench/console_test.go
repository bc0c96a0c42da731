package bench

import (
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/command/report"
)

// Viewers of whom half never read get their first events, and the requests meanwhile their answers.
func TestConsoleViewers(t *testing.T) {
	w, err := newWatchedServer(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.close)
	v, err := openViewers(t.Context(), w.URL, 5)
	if err != nil || len(v.connections) != 5 {
		t.Fatalf("%+v, %v", v, err)
	}
	w.close()
	v.group.Wait()
	if n := v.ended.Load(); n != 3 {
		t.Errorf("the provider has ended %d streams that were read, want 3", n)
	}
	if _, err := openViewers(t.Context(), w.URL, 1); err == nil {
		t.Error("a viewer of a provider that is gone")
	}
}

func TestConsoleFigures(t *testing.T) {
	w, err := newWatchedServer(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.close)
	r := report.New("bench console", time.Now())
	target := load.Target{Name: "x", URL: w.URL + "/function/" + functionAt(0), Body: load.Cycle([]byte("x")), Rate: 100}
	if err := measureViewers(t.Context(), r, w.URL, target, 8, 50*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if err := measureHistory(t.Context(), r, 20, 130); err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range r.Results {
		got[f.Name] = f.Value
	}
	if got["viewers.lost"] != 0 || got["viewers.ended"] != 0 || !(got["viewers.p99_ms"] > 0) || !(got["viewers.read_mib"] > 0) {
		t.Errorf("viewers: %v", got)
	}
	if mib := got["stats.memory_mib"]; mib < 0.1 || mib > 2 {
		t.Errorf("20 functions take %g MiB", mib)
	}
}
