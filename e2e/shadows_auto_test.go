package e2e

import (
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/command/load"
)

// used is what a description says of a function with shadows that start where they are the cheapest: how many
// there are, which part they hold, and why, in MiB.
var used = regexp.MustCompile(`shadows: (\d+) for (\d+) instances; beside \d+m one holds the blocks [\d:,]+ with \d+ MiB of weights, and takes \d+ MiB; a whole instance needs \d+ MiB; they start where that is the cheapest: a node's instances share the weights, so a shadow takes (\d+) MiB more and a whole instance (\d+)`)

// A function that may have shadows serves a burst by whatever is the cheapest. Its answers are right, and
// its description says what is used and why.
func TestCheapestWayUnderBurst(t *testing.T) {
	if onCluster != nil {
		return // Shadows start on one machine only.
	}
	s := deployShadowed(t, "mobilenet", "2s", "500m", "3", "infer.shadow", "auto", "infer.max-batch", "4")
	p, d := s.place, s.provider
	d.await(t, 10*time.Minute, "the layers' profile", func() bool { return used.MatchString(s.plan(t)) })
	// A slow machine may need more than one burst to start another process, and on a fast one
	// one instance serves a small burst: each burst has twice the rate of the one before.
	const rounds = 5
	most := 0
	for round := 0; round < rounds && most < 2; round++ {
		var r load.TargetResult
		for done, ended := s.load(t, float64(60*int(1<<round)), 8*time.Second), false; !ended; {
			select {
			case all := <-done:
				r, ended = all[0], true
			case <-time.After(200 * time.Millisecond):
				most = max(most, len(p.instancesOf("photos")))
				if plan := s.plan(t); !used.MatchString(plan) {
					t.Errorf("described as %q", plan)
				}
			}
		}
		t.Logf("up to %d processes; %s; of %d requests %s; p50 %v", most, s.plan(t), r.Requests, outcome(r), r.Latency.P50)
		wantAnswered(t, r, http.StatusServiceUnavailable, http.StatusTooManyRequests)
		if r.Latency.P50 <= 0 {
			t.Errorf("nothing was answered: %s", outcome(r))
		}
	}
	if most < 2 {
		t.Errorf("the burst found %d processes", most)
	}
	d.await(t, patience, "the instances to go when they are idle", func() bool { return len(p.instancesOf("photos")) == 0 })
	d.stop(t)
	p.nothingLeft(t)
}
