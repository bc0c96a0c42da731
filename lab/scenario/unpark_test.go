package scenario

import (
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/lab/sim"
)

// The time to unpark an instance is a part of cold_start and has a default.
func TestUnpark(t *testing.T) {
	const rest = "kind: run\ncluster: testbed\nduration: 1m\nfunctions:\n- {name: ssd, size: 29MiB, slo: 200ms, arrivals: {poisson: 10}}\n"
	for text, want := range map[string]time.Duration{
		rest: sim.DefaultUnpark, "cold_start: {sandbox: 1s}\n" + rest: sim.DefaultUnpark, "cold_start: {unpark: 30ms}\n" + rest: 30 * time.Millisecond,
	} {
		s, err := Parse("x.yaml", []byte(text), "", Overrides{})
		if err != nil {
			t.Fatal(err)
		}
		if got := setup(t, s, 1, 1).Unpark; got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	_, err := Parse("x.yaml", []byte("cold_start: {unpark: 0s}\n"+rest), "", Overrides{})
	if err == nil || !strings.Contains(err.Error(), "cold_start.unpark") {
		t.Errorf("an instance that needs no time at all: %v", err)
	}
}
