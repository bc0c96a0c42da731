package control

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider"
)

// A node or the API server that refuses an instance is not the function's fault: no pause
// follows, and the next one starts at once where the backend says. The description says who
// refuses. If all do, requests wait and get the reason.
func TestRefusedStart(t *testing.T) {
	var refuses, all atomic.Bool
	refuses.Store(true)
	const why = "its pods are refused by node n1 (TopologyAffinityError)"
	refused := atomic.Int32{}
	tryWith(t, func(o *Options) {
		b := o.Backend.(*fakeBackend)
		b.Machines = append(b.Machines, cluster.Node{Name: "n2", Total: b.Machines[0].Total})
		o.Eligible = func(*provider.Function) ([]string, string) {
			switch {
			case all.Load():
				return []string{}, why
			case refused.Load() > 0:
				return []string{"n2"}, why
			}
			return []string{"n1"}, ""
		}
		b.becomes(func(_ int, spec cluster.InstanceSpec) behaviour {
			if spec.Node == "n1" {
				refused.Add(1)
				return behaviour{Refuse: &cluster.RefusedError{Err: errors.New("TopologyAffinityError")}}
			}
			return behaviour{}
		})
	}, func(r *rig) {
		r.measured("f", "m")
		began := time.Now()
		r.answered("f", "m")
		if took := time.Since(began); took > 2*coldStart || refused.Load() != 1 {
			t.Errorf("answered after %v and %d refusals", took, refused.Load())
		}
		r.mu.Lock()
		failures := r.functions[full("f")].Failures
		r.mu.Unlock()
		if d := r.describe("f"); failures.Count != 0 || d.Problem != why {
			t.Errorf("%d failures, described with %q", failures.Count, d.Problem)
		}
		if s, _ := r.Status(full("f")); !s.Slight || s.Short {
			t.Errorf("the problem keeps it from serving: %+v", s)
		}
		all.Store(true)
		r.backend.crash(r.only().ID, "killed by signal 9")
		r.until("it is gone", func() bool { return r.describe("f").Ready == 0 })
		if _, err := r.invoke("f", "x"); status(err) != 503 || !strings.Contains(err.Error(), "TopologyAffinityError") {
			t.Errorf("without a node: %v", err)
		}
	})
}
