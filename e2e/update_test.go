package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/command/load"
)

// An update under load: the old or the new deployment answers every request with its own
// answer, until only the new one answers.
func TestUpdateUnderLoad(t *testing.T) {
	providerTests.takeHere(t)
	p := newPlace(t)
	p.identity(t)
	p.doubling(t)
	d := p.provider(t, suite.binary)
	for name, change := range map[string]func(f *types.FunctionDeployment){
		"nothing":   func(f *types.FunctionDeployment) {},
		"objective": func(f *types.FunctionDeployment) { (*f.Annotations)["com.openfaas.slo.latency"] = "12s" },
		"policy":    func(f *types.FunctionDeployment) { (*f.Annotations)["com.openfaas.infer.policy"] = "infless" },
		"model":     func(f *types.FunctionDeployment) { f.Image = "double:latest" },
		"resources": func(f *types.FunctionDeployment) { f.Limits = &types.FunctionResources{CPU: "500m"} },
	} {
		// Only what instances are started with makes new ones.
		restarts := name == "model" || name == "resources"
		t.Run(name, func(t *testing.T) {
			// The policy infless waits with the last requests, which make no whole
			// batch, for as long as the objective allows; so batches are small.
			// The objective is beyond what the machine stands still, so that who is refused
			// was lost on the way.
			f := scaled(function(name, "identity:latest", "10s", "infer.max-batch", "4"), "1", "4")
			d.deploy(t, f)
			d.awaitReady(t, name, 1)
			before := p.instancesOf(name)
			var oldAnswers, newAnswers atomic.Int64
			target := identityTarget(d.function(name), 150)
			target.Verify = func(i int, body []byte) error {
				switch {
				case bytes.HasSuffix(body, doubled(i)) && i > 0:
					newAnswers.Add(1)
				case bytes.HasSuffix(body, payload(i)):
					oldAnswers.Add(1)
				default:
					return fmt.Errorf("request %d got another's answer: %q", i, body)
				}
				return nil
			}
			done := beside(t, load.Options{Targets: []load.Target{target}, Duration: 4 * time.Second, Seed: 3})
			d.await(t, patience, "load", func() bool { _, n, _ := d.batches(t, name); return n > 100 })
			change(&f)
			if a := d.put(t, http.MethodPut, f); a.status != http.StatusAccepted {
				t.Errorf("update: %d %s", a.status, a.body)
			}
			if restarts {
				d.await(t, patience, "the old instances to go", func() bool {
					now := p.instancesOf(name)
					return len(now) > 0 && d.status(t, name).AvailableReplicas > 0 && !overlap(before, now)
				})
			}
			r := (<-done)[0]
			if now := p.instancesOf(name); !restarts && !overlap(before, now) {
				t.Errorf("instances %v were replaced by %v", before, now)
			}
			t.Logf("of %d requests %s; %d answers from the old model, %d from the new; p99 %v", r.Requests, outcome(r), oldAnswers.Load(), newAnswers.Load(), r.Latency.P99)
			wantAnswered(t, r, http.StatusServiceUnavailable)
			if r.Refused*100 > r.Requests {
				t.Errorf("%d of %d requests were refused", r.Refused, r.Requests)
			}
			if name == "model" {
				d.onlyDoubled(t, name)
			}
			d.remove(t, name)
			d.await(t, patience, "its instances to go", func() bool { return len(p.instancesOf(name)) == 0 })
		})
	}
	d.stop(t)
}

// onlyDoubled fails the test unless the new model of a function answers.
func (d *daemon) onlyDoubled(t *testing.T, name string) {
	t.Helper()
	for i := 1; i < 20; i++ {
		body, length := identityBody(i)
		a := do(t, client(t), http.MethodPost, d.function(name), body, load.HeaderLength, fmt.Sprint(length))
		if a.status != http.StatusOK || !bytes.HasSuffix([]byte(a.body), doubled(i)) {
			t.Fatalf("after the update: %d %q", a.status, a.body)
		}
	}
}

func overlap(a, b []int) bool {
	in := map[int]bool{}
	for _, x := range a {
		in[x] = true
	}
	for _, x := range b {
		if in[x] {
			return true
		}
	}
	return false
}
