package deployments

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/provider/deployments"
	"github.com/faas-infer/faas-infer/provider/peer"
)

// others has the other replicas, as seen by one.
type others struct {
	boot string
	of   atomic.Pointer[replica]
}

// Loads returns the loads that the other replica has seen.
func (o *others) Loads() []peer.Load {
	p := o.of.Load()
	if p == nil {
		return nil
	}
	return []peer.Load{{Boot: o.boot, Functions: p.Loads(), At: time.Now()}}
}

// Wake wakes the other replica, whether it leads or not.
func (o *others) Wake() {
	if p := o.of.Load(); p != nil {
		p.Wake()
	}
}

// Every replica forwards requests by itself. The leader scales for all, and another replica
// continues when it stops.
func TestSeveralReplicas(t *testing.T) {
	r := newRig(t)
	var leader atomic.Int64
	two := make([]*replica, 2)
	peers := []*others{{boot: "b"}, {boot: "a"}}
	for i := range two {
		two[i] = r.replica(func(o *deployments.Options) {
			o.Leading, o.Peers, o.Metrics = func() bool { return leader.Load() == int64(i) }, peers[i], newMetrics()
		})
	}
	peers[0].of.Store(two[1])
	peers[1].of.Store(two[0])

	f, first := two[0].deploy(types.FunctionDeployment{Service: "shared", Image: "x", Labels: pairs("com.openfaas.scale.max", "3", "com.openfaas.scale.target", "5")})
	second, err := two[1].Deploy(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	two[0].ready(f, 1)
	two[1].ready(f, 1)
	// What one that does not lead is asked brings instances as well.
	l := r.load(second, 4, "/")
	two[0].ready(f, 3)
	two[1].ready(f, 3)
	l.end(r)

	if err := two[0].Scale(f.Name, 0); err != nil {
		t.Fatal(err)
	}
	two[1].ready(f, 0)
	if answer, err := invoke(t.Context(), second, "/"); err != nil || answer.Status != 200 {
		t.Fatal(answer, err)
	}
	two[1].ready(f, 1)

	// The leader dies. The other leads with what runs.
	before := r.deployment(f)
	two[0].stop()
	peers[1].of.Store(nil)
	leader.Store(1)
	two[1].Wake()
	if err := two[1].Scale(f.Name, 2); err != nil {
		t.Fatal(err)
	}
	two[1].ready(f, 2)
	if now := r.deployment(f); now.UID != before.UID || now.Annotations["faas-infer.dev/applied"] != before.Annotations["faas-infer.dev/applied"] {
		t.Error("another leader made something else of it")
	}
	_ = first
}
