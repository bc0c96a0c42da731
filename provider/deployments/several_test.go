package deployments

import (
	"context"
	"testing"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/peer"
)

// one is a group of one other replica, which tells of each batch once.
type one struct{ executed []peer.Executed }

func (o *one) Loads() []peer.Load {
	l := peer.Load{Boot: "b", Executed: o.executed, Functions: map[string]peer.FunctionLoad{"f.x": {Arrivals: 3}}}
	o.executed = nil
	return []peer.Load{l}
}

func (o *one) Wake() {}

func (o *one) Drain(context.Context, cluster.InstanceID) {}

func (o *one) Park(context.Context, cluster.InstanceID) bool { return true }

func TestAmong(t *testing.T) {
	group := &one{}
	models, ordinary := Among(group)
	for _, size := range []int{1, 2} {
		group.executed = []peer.Executed{{Function: "m.x", Size: size}}
		if l := ordinary.Loads(); len(l) != 1 || l[0].Functions["f.x"].Arrivals != 3 || l[0].Executed != nil {
			t.Errorf("ordinary functions' are told %+v", l)
		}
	}
	group.executed = []peer.Executed{{Function: "m.x", Size: 3}}
	if l := models.Loads(); len(l[0].Executed) != 3 || l[0].Executed[0].Size != 1 || l[0].Executed[2].Size != 3 {
		t.Errorf("models' are told %+v", l)
	}
	if l := models.Loads(); len(l[0].Executed) != 0 {
		t.Errorf("twice: %+v", l)
	}
	for range 3 * mostExecuted {
		group.executed = append(group.executed, peer.Executed{})
		ordinary.Loads()
	}
	if l := models.Loads(); len(l[0].Executed) != mostExecuted {
		t.Errorf("%d are kept", len(l[0].Executed))
	}
}
