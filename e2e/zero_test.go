package e2e

import (
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/command/load"
)

// A function's instances stop as soon as they are idle. It loses no request, not even those
// that come while an instance stops. Afterwards it has no instance.
func TestToZeroAndBack(t *testing.T) {
	providerTests.takeHere(t)
	p := newPlace(t)
	p.identity(t)
	d := p.provider(t, suite.binary)
	d.deploy(t, function("f", "identity:latest", "10s", "infer.keep-alive", "100ms"))
	if err := invokeIdentity(client(t), d.function("f"), 1); err != nil {
		t.Fatal(err)
	}
	// On a slow machine an instance starts longer than it is away; then a few more
	// requests are needed until enough of them have found none.
	const enough, rounds = 4, 10
	starts := uint64(0)
	for round := uint64(1); round <= rounds && starts < enough; round++ {
		result, err := load.Run(t.Context(), load.Options{Targets: []load.Target{identityTarget(d.function("f"), 6)}, Duration: 4 * time.Second, Seed: 5 * round})
		if err != nil {
			t.Fatal(err)
		}
		starts = d.coldStarts(t)
		r := result.Targets[0]
		t.Logf("of %d requests %s; %d instances were started; p50 %v, max %v", r.Requests, outcome(r), starts, r.Latency.P50, r.Latency.Max)
		wantAnswered(t, r)
	}
	if starts < enough {
		t.Errorf("%d instances were started, so hardly a request came at zero", starts)
	}
	d.await(t, patience, "the last instance to go", func() bool { return len(p.instances()) == 0 })
	d.stop(t)
}

// coldStarts returns the number of started instances.
func (d *daemon) coldStarts(t *testing.T) (n uint64) {
	t.Helper()
	for _, m := range d.metrics(t)["faas_infer_cold_start_duration_seconds"].GetMetric() {
		n += m.GetHistogram().GetSampleCount()
	}
	return n
}
