package control

import (
	"time"

	"github.com/faas-infer/faas-infer/provider/dispatch"
	"github.com/faas-infer/faas-infer/provider/peer"
)

// maxRan bounds the executed batches of which others can still ask.
const maxRan = 2048

// chronicle keeps the latest batches that were executed. Its zero value is empty.
type chronicle struct {
	// kept are the latest ones; all that there were are Total.
	kept  []peer.Executed
	Total uint64
}

// Add adds what a function has executed.
func (r *chronicle) Add(function string, ran []dispatch.Executed) {
	for _, e := range ran {
		r.kept = append(r.kept, peer.Executed{Function: function, Instance: e.Instance, Size: e.Size, Exec: e.Exec, Beside: e.Beside})
	}
	r.Total += uint64(len(ran))
	if len(r.kept) > 2*maxRan {
		r.kept = append(r.kept[:0], r.kept[len(r.kept)-maxRan:]...)
	}
}

// Since are those after the first n.
func (r *chronicle) Since(n uint64) []peer.Executed {
	if n >= r.Total {
		return nil
	}
	missing := min(r.Total-n, uint64(len(r.kept)), maxRan)
	return append([]peer.Executed(nil), r.kept[uint64(len(r.kept))-missing:]...)
}

// peerLoads is what the other replicas have told of one function.
type peerLoads struct {
	// peerLoad is what each last told, by its Boot.
	heard map[string]peerLoad
	// arrivals and cold count what came to them since this replica listens, the others
	// what became of it.
	arrivals, cold, inTime, late, refused uint64
	executed                              []dispatch.Executed
}

type peerLoad struct {
	peer.FunctionLoad
	at time.Time
}

// maxHeard bounds what others have executed until it is looked at.
const maxHeard = 1024

// Take takes in what a replica tells. Counters of one that was not heard before begin
// with what does not wait yet.
func (o *peerLoads) Take(boot string, told peer.FunctionLoad, at time.Time) {
	h := peerLoad{told, at}
	before, ok := o.heard[boot]
	if !ok {
		if o.heard == nil {
			o.heard = map[string]peerLoad{}
		}
		before.FunctionLoad = h.FunctionLoad
		before.Arrivals -= min(h.Arrivals, uint64(max(0, h.Waiting)))
	}
	for _, count := range []struct {
		sum           *uint64
		before, after uint64
	}{
		{&o.arrivals, before.Arrivals, h.Arrivals}, {&o.cold, before.Cold, h.Cold},
		{&o.inTime, before.InTime, h.InTime}, {&o.late, before.Late, h.Late}, {&o.refused, before.Refused, h.Refused},
	} {
		if count.after >= count.before {
			*count.sum += count.after - count.before
		}
	}
	o.heard[boot] = h
}

// Keep forgets replicas that are not present.
func (o *peerLoads) Keep(present map[string]bool) {
	for boot := range o.heard {
		if !present[boot] {
			delete(o.heard, boot)
		}
	}
}

// TakeExecuted appends what others have executed to into.
func (o *peerLoads) TakeExecuted(into []dispatch.Executed) []dispatch.Executed {
	into = append(into, o.executed...)
	o.executed = o.executed[:0]
	return into
}

// Note keeps a batch that others have executed until it is taken.
func (o *peerLoads) Note(e peer.Executed) {
	if len(o.executed) < maxHeard {
		o.executed = append(o.executed, dispatch.Executed{Instance: e.Instance, Size: e.Size, Exec: e.Exec, Beside: e.Beside})
	}
}

// Add adds to what this replica's dispatcher has seen what the others have told.
func (o *peerLoads) Add(s *dispatch.Stats) {
	s.Arrivals += o.arrivals
	s.Cold += o.cold
	s.InTime, s.Late, s.Refused = s.InTime+o.inTime, s.Late+o.late, s.Refused+o.refused
	for _, h := range o.heard {
		s.Waiting += h.Waiting
		for id, idle := range h.Idle {
			since, ok := s.Instances[id]
			switch at := h.at.Add(-time.Duration(idle) * time.Millisecond); {
			case !ok || since.IsZero():
			case idle == peer.Busy:
				s.Instances[id] = time.Time{}
			case at.After(since):
				s.Instances[id] = at
			}
		}
	}
}
