package peer

import (
	"maps"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/dispatch"
)

// maxRan bounds the executed batches of which others can still ask.
const maxRan = 2048

// chronicle keeps the latest batches that were executed. Its zero value is empty.
type chronicle struct {
	// kept are the latest ones; all that there were are Total.
	kept  []Executed
	Total uint64
}

// Add adds what a function has executed.
func (r *chronicle) Add(function string, ran []dispatch.Executed) {
	for _, e := range ran {
		r.kept = append(r.kept, Executed{Function: function, Instance: e.Instance, Size: e.Size, Exec: e.Exec, Beside: e.Beside})
	}
	r.Total += uint64(len(ran))
	if len(r.kept) > 2*maxRan {
		r.kept = append(r.kept[:0], r.kept[len(r.kept)-maxRan:]...)
	}
}

// Since are those after the first n.
func (r *chronicle) Since(n uint64) []Executed {
	if n >= r.Total {
		return nil
	}
	missing := min(r.Total-n, uint64(len(r.kept)), maxRan)
	return append([]Executed(nil), r.kept[uint64(len(r.kept))-missing:]...)
}

// elsewhere is what the other replicas have told of one function.
type elsewhere struct {
	// told is what each last told, by its Boot.
	told map[string]toldLoad
	// arrivals and cold count what came to them since this replica listens, the others
	// what became of it.
	arrivals, cold, inTime, late, refused uint64
	executed                              []dispatch.Executed
	// unused is since when instances have been idle that this replica has never used,
	// as far as it was looked at: the others need not be told of those.
	unused map[cluster.InstanceID]time.Time
}

type toldLoad struct {
	FunctionLoad
	at time.Time
}

// maxPending bounds what others have executed until it is looked at.
const maxPending = 1024

// Take takes in what a replica tells. Counters of one that has told nothing before begin
// with what does not wait yet.
func (o *elsewhere) Take(boot string, load FunctionLoad, at time.Time) {
	h := toldLoad{load, at}
	before, ok := o.told[boot]
	if !ok {
		if o.told == nil {
			o.told = map[string]toldLoad{}
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
	o.told[boot] = h
}

// Keep forgets replicas that are not present.
func (o *elsewhere) Keep(present map[string]bool) {
	for boot := range o.told {
		if !present[boot] {
			delete(o.told, boot)
		}
	}
}

// TakeExecuted appends what others have executed to into.
func (o *elsewhere) TakeExecuted(into []dispatch.Executed) []dispatch.Executed {
	into = append(into, o.executed...)
	o.executed = o.executed[:0]
	return into
}

// Note keeps a batch that others have executed until it is taken.
func (o *elsewhere) Note(e Executed) {
	if len(o.executed) < maxPending {
		o.executed = append(o.executed, dispatch.Executed{Instance: e.Instance, Size: e.Size, Exec: e.Exec, Beside: e.Beside})
	}
}

// Add adds to what this replica's dispatcher has seen what the others have told.
func (o *elsewhere) Add(s *dispatch.Stats) {
	s.Arrivals += o.arrivals
	s.Cold += o.cold
	s.InTime, s.Late, s.Refused = s.InTime+o.inTime, s.Late+o.late, s.Refused+o.refused
	for _, h := range o.told {
		s.Waiting += h.Waiting
		for id, idle := range h.Idle {
			since, ok := s.Instances[id]
			switch at := h.at.Add(-time.Duration(idle) * time.Millisecond); {
			case !ok || since.IsZero():
			case idle == Busy:
				s.Instances[id] = time.Time{}
			case at.After(since):
				s.Instances[id] = at
			}
		}
	}
}

// look notes since when instances have been idle that were not seen before.
func (o *elsewhere) look(s *dispatch.Stats) {
	if o.unused == nil {
		o.unused = map[cluster.InstanceID]time.Time{}
	}
	for id, since := range s.Instances {
		if _, ok := o.unused[id]; !ok {
			o.unused[id] = since
		}
	}
	if len(o.unused) > 2*len(s.Instances)+16 {
		maps.DeleteFunc(o.unused, func(id cluster.InstanceID, _ time.Time) bool { _, ok := s.Instances[id]; return !ok })
	}
}

// idle is for how many milliseconds the instances that this replica has used have been
// idle.
func (o *elsewhere) idle(now time.Time, s *dispatch.Stats) map[cluster.InstanceID]int64 {
	idle := map[cluster.InstanceID]int64{}
	for id, since := range s.Instances {
		switch {
		case since.IsZero():
			idle[id] = Busy
		case since.After(o.unused[id]):
			idle[id] = now.Sub(since).Milliseconds()
		}
	}
	return idle
}
