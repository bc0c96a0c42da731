package peer

import (
	"context"
	"maps"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/dispatch"
)

// replicaLocal implements [Local] for a Replica.
type replicaLocal struct{ *Replica }

// Local returns the replica's side for [Group.Attach].
func (r *Replica) Local() Local { return replicaLocal{r} }

// Wake implements [Local].
func (r replicaLocal) Wake() { r.local.Wake() }

// Load implements [Local].
func (r replicaLocal) Load(since uint64) Load {
	now := time.Now()
	l := Load{Functions: map[string]FunctionLoad{}}
	r.local.EachStats(func(function string, s dispatch.Stats) {
		r.mu.Lock()
		defer r.mu.Unlock()
		e := r.of(function)
		e.look(&s)
		l.Functions[function] = FunctionLoad{
			Arrivals: s.Arrivals, Cold: s.Cold, ExtraRows: s.ExtraRows,
			InTime: s.InTime, Late: s.Late, Refused: s.Refused, Slow: s.Slow,
			Waiting: s.Waiting, Patient: s.Patient, PatientWaiting: s.PatientWaiting,
			Classes: s.Classes, Idle: e.idle(now, &s),
		}
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	l.Executed, l.Next = r.ran.Since(since), r.ran.Total
	if len(r.lost) > 0 {
		l.Lost = maps.Clone(r.lost)
	}
	return l
}

// Drain implements [Local].
func (r replicaLocal) Drain(ctx context.Context, id cluster.InstanceID) error {
	r.leaveAlone(id)
	return r.local.Leave(ctx, id)
}

// Park implements [Local].
func (r replicaLocal) Park(id cluster.InstanceID) bool {
	rests, left := r.local.Rest(id)
	if left {
		r.leaveAlone(id)
	}
	return rests
}

// Serve implements [Local].
func (r replicaLocal) Serve(id cluster.InstanceID, config cluster.Config) {
	if !r.Leads() {
		r.local.Resume(id, config)
	}
}

// leaveAlone records that this replica leaves an instance alone from now on.
func (r *Replica) leaveAlone(id cluster.InstanceID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leftAlone[id] = time.Now()
}
