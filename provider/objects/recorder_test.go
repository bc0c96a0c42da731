package objects

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	events "k8s.io/client-go/tools/record"

	"github.com/faas-infer/faas-infer/cluster/kubernetes/v1alpha1"
	"github.com/faas-infer/faas-infer/provider/decisions"
)

// The leader writes each decision about a function that is there as an event, once.
func TestDecisionsAreEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, fake := decisions.NewLog(), events.NewFakeRecorder(100)
		var leading atomic.Bool
		leading.Store(true)
		add := func(function string, kind decisions.Kind, f decisions.Fields) {
			l.Add(time.Now(), function, kind, f)
			time.Sleep(2 * decisionsPause)
		}
		add("f.ns", decisions.Deploy, decisions.Fields{Image: "before"})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			r := recorder{fake}
			r.follow(ctx, l, leading.Load, func(full string) (*v1alpha1.Function, bool) {
				return &v1alpha1.Function{}, full == "f.ns"
			})
		}()
		synctest.Wait()
		add("f.ns", decisions.Start, decisions.Fields{Instances: 1, Why: "minimum"})
		add("f.ns", decisions.Start, decisions.Fields{Instances: 1, Why: "minimum"})
		add("f.ns", decisions.Exit, decisions.Fields{Instances: 1, Detail: "killed"})
		add("f.ns", decisions.Problem, decisions.Fields{Detail: "told by Tell"})
		add("other.ns", decisions.Start, decisions.Fields{Instances: 1})
		add("", decisions.Node, decisions.Fields{Wanted: 2})
		l.Share("pool.ns", []string{"e.ns", "f.ns"})
		add("pool.ns", decisions.Stop, decisions.Fields{Instances: 1})
		leading.Store(false)
		add("f.ns", decisions.Stop, decisions.Fields{Instances: 1})
		cancel()
		<-done
		close(fake.Events)
		var got []string
		for e := range fake.Events {
			got = append(got, e)
		}
		if len(got) != 3 || got[2] != "Normal Stop Stopped an instance. Shared by e, f." || got[0] != "Normal Start Started an instance: the function keeps this number of instances without load, too." ||
			got[1] != "Warning Exit An instance exited: killed." {
			t.Errorf("%q", got)
		}
	})
}
