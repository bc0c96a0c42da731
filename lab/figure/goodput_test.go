package figure

import (
	"testing"

	"github.com/faas-infer/faas-infer/lab/scenario"
)

// Each function is a case of its own. Sharing a queue and dropping only what is late serves at least as much as
// Nexus' queues do.
func TestGoodput(t *testing.T) {
	s := parsed(t, "goodput", `
about: "a test"
kind: goodput
cluster: {machines: [{name: m, count: 2, cpu: 4, memory: 16GiB, gpus: 1, gpu_memory: 11GiB}]}
duration: 12s
warmup: 5s
cold_wait: 1s
cold_start: {sandbox: 50ms, library: 50ms, load: 1GiB}
functions:
  - {name: a, size: 98MiB, line: {alpha: 10ms, beta: 50ms}, slo: 300ms, arrivals: {poisson: 10}}
  - {name: b, size: 98MiB, line: {alpha: 30ms, beta: 30ms, batch: 8}, slo: 300ms, arrivals: {poisson: 10}}
`)
	if n := len(s.Cases()); n != 2 {
		t.Fatalf("%d cases, want one for each function", n)
	}
	out, err := Run(t.Context(), s, Options{Systems: systemsOf(t, "nexus", "symphony", "faas-infer")})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"a", "b"} {
		if nexus, symphony := value(t, out, "goodput.nexus."+f), value(t, out, "goodput.symphony."+f); nexus <= 0 || symphony < nexus {
			t.Errorf("%s: nexus has %.1f, symphony %.1f requests/s", f, nexus, symphony)
		}
	}
	if worst, median := value(t, out, "ratio.faas-infer_over_nexus.worst"), value(t, out, "ratio.faas-infer_over_nexus.median"); worst < 1 || median < worst {
		t.Errorf("faas-infer over nexus: worst %.2f, median %.2f", worst, median)
	}
}

// A line has its own times: a profile has no part in it.
func TestALineIsATestbed(t *testing.T) {
	s, err := scenario.Parse("line", []byte(`
kind: goodput
about: "a test"
cluster: testbed
duration: 12s
functions:
  - {name: a, size: 98MiB, line: {alpha: 2ms, beta: 5ms, batch: 4}, slo: 300ms, arrivals: {poisson: 10}}
`), "", scenario.Overrides{})
	if err != nil {
		t.Fatal(err)
	}
	times := s.Functions[0].Times
	all := times.Configs()
	if len(all) != 4 || all[3].Batch != 4 || all[3].GPU != 100 || times.Spread() != 0 {
		t.Fatalf("%+v, spread %v", all, times.Spread())
	}
	if got, ok := times.Exec(all[3], 3); !ok || got.Milliseconds() != 11 {
		t.Errorf("three take %v, %v, want 11 ms", got, ok)
	}
	if _, err := scenario.Parse("line", []byte(`
kind: goodput
about: "a test"
cluster: testbed
duration: 12s
functions:
  - {name: a, size: 98MiB, line: {alpha: 2ms}, slo: 300ms, arrivals: {poisson: 10}}
`), "", scenario.Overrides{}); err == nil {
		t.Error("a line without beta is accepted")
	}
}
