package e2e

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/command/load"
)

// Under every policy, distinct requests from many clients at once and in an open loop get
// their own answers.
func TestPoliciesUnderStress(t *testing.T) {
	providerTests.takeHere(t)
	p := newPlace(t)
	p.identity(t)
	d := p.provider(t, race(t))
	const largest = 16
	for _, policy := range []string{"shared", "infless", "one-to-one"} {
		t.Run(policy, func(t *testing.T) {
			slo := "20s"
			if policy == "infless" {
				slo = "5s" // Of which it uses up most by waiting.
			}
			d.deploy(t, scaled(function(policy, "identity:latest", slo, "infer.policy", policy, "infer.max-batch", fmt.Sprint(largest)), "1", "2"))
			d.awaitReady(t, policy, 1)
			const clients = 48
			closed, err := load.RunClosed(t.Context(), identityTarget(d.function(policy), 0), clients, 2*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			// A slow machine may miss the objective.
			wantAnswered(t, *closed, http.StatusServiceUnavailable)
			// One at a time, a fraction of a core that others use, too, may carry no
			// more than some eighty requests per second.
			rate := 300.0
			if policy == "one-to-one" {
				rate = 40
			}
			open, err := load.Run(t.Context(), load.Options{Targets: []load.Target{identityTarget(d.function(policy), rate)}, Duration: 2 * time.Second, Seed: 4})
			if err != nil {
				t.Fatal(err)
			}
			wantAnswered(t, open.Targets[0], http.StatusServiceUnavailable)
			batches, requests, larger := d.batches(t, policy)
			t.Logf("%d requests from %d clients, %d in an open loop, in %d batches; p99 %v", closed.Requests, clients, open.Targets[0].Requests, batches, open.Targets[0].Latency.P99)
			if larger == (policy == "one-to-one") {
				t.Errorf("%d requests in %d batches", requests, batches)
			}
			if good := uint64(closed.Good + open.Targets[0].Good); requests != good {
				t.Errorf("%d requests were executed, %d were answered", requests, good)
			}
			// One batch of each instance may come late: that of the last requests, which
			// infless holds for as long as it can.
			all, refused := closed.Requests+open.Targets[0].Requests, closed.Refused+open.Targets[0].Refused
			if refused > 2*largest+all/50 {
				t.Errorf("of %d requests, %d and %d were refused", all, closed.Refused, open.Targets[0].Refused)
			}
		})
	}
	d.stop(t)
}
