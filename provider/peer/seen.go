package peer

import (
	"maps"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/dispatch"
)

// maxRan bounds the executed batches that others can still ask for.
const maxRan = 2048

// executedLog keeps the latest executed batches. Its zero value is empty.
type executedLog struct {
	// kept are the latest batches, Total counts all.
	kept  []Executed
	Total uint64
}

// Add adds a function's executed batches.
func (r *executedLog) Add(function string, ran []dispatch.Executed) {
	for _, e := range ran {
		r.kept = append(r.kept, Executed{Function: function, Instance: e.Instance, Size: e.Size, Exec: e.Exec, Beside: e.Beside, Elements: e.Elements})
	}
	r.Total += uint64(len(ran))
	if len(r.kept) > 2*maxRan {
		r.kept = append(r.kept[:0], r.kept[len(r.kept)-maxRan:]...)
	}
}

// Since returns the batches after the first n, at most the latest maxRan.
func (r *executedLog) Since(n uint64) []Executed {
	if n >= r.Total {
		return nil
	}
	missing := min(r.Total-n, uint64(len(r.kept)), maxRan)
	return append([]Executed(nil), r.kept[uint64(len(r.kept))-missing:]...)
}

// peerLoads is what the other replicas have reported about one function.
type peerLoads struct {
	// latest is the latest load of each replica, by its Boot.
	latest map[string]timedLoad
	// These counters sum up the others' counters since this replica first heard of each.
	arrivals, extraRows, patient, cold, inTime, late, refused, slow uint64
	executed                                                        []dispatch.Executed
	// idleAtFirst is the time since which each instance was idle when this replica first
	// looked at it. An instance that is still idle since then was never used here, and the
	// others need no report about it.
	idleAtFirst map[cluster.InstanceID]time.Time
	// served: this replica has looked at the function since the last [Replica.Listen].
	served bool
}

type timedLoad struct {
	FunctionLoad
	at time.Time
}

// maxPending bounds the others' executed batches that nobody has taken yet.
const maxPending = 1024

// Take adds up a replica's load. Of a replica that is new, only the requests that still wait
// count as arrivals.
func (o *peerLoads) Take(boot string, load FunctionLoad, at time.Time) {
	h := timedLoad{load, at}
	before, ok := o.latest[boot]
	if !ok {
		if o.latest == nil {
			o.latest = map[string]timedLoad{}
		}
		before.FunctionLoad = h.FunctionLoad
		before.Arrivals -= min(h.Arrivals, uint64(max(0, h.Waiting)))
		before.Patient -= min(h.Patient, uint64(max(0, h.PatientWaiting)))
	}
	for _, count := range []struct {
		sum           *uint64
		before, after uint64
	}{
		{&o.arrivals, before.Arrivals, h.Arrivals}, {&o.extraRows, before.ExtraRows, h.ExtraRows}, {&o.patient, before.Patient, h.Patient}, {&o.cold, before.Cold, h.Cold},
		{&o.inTime, before.InTime, h.InTime}, {&o.late, before.Late, h.Late}, {&o.refused, before.Refused, h.Refused}, {&o.slow, before.Slow, h.Slow},
	} {
		if count.after >= count.before {
			*count.sum += count.after - count.before
		}
	}
	o.latest[boot] = h
}

// Keep forgets the loads of replicas that have none of the function.
func (o *peerLoads) Keep(has func(boot string) bool) {
	maps.DeleteFunc(o.latest, func(boot string, _ timedLoad) bool { return !has(boot) })
}

// abandoned reports whether no other replica has a load of the function any more and this one has not
// looked at it since the last call.
func (o *peerLoads) abandoned() bool {
	served := o.served
	o.served = false
	return !served && len(o.latest) == 0
}

// TakeExecuted appends the others' executed batches to into and forgets them.
func (o *peerLoads) TakeExecuted(into []dispatch.Executed) []dispatch.Executed {
	into = append(into, o.executed...)
	o.executed = o.executed[:0]
	return into
}

// Note keeps another replica's executed batch until TakeExecuted.
func (o *peerLoads) Note(e Executed) {
	if len(o.executed) < maxPending {
		o.executed = append(o.executed, dispatch.Executed{Instance: e.Instance, Size: e.Size, Exec: e.Exec, Beside: e.Beside, Elements: e.Elements})
	}
}

// Add adds the others' loads to the stats of this replica's dispatcher.
func (o *peerLoads) Add(s *dispatch.Stats) {
	s.Arrivals += o.arrivals
	s.ExtraRows += o.extraRows
	s.Cold += o.cold
	s.InTime, s.Late, s.Refused = s.InTime+o.inTime, s.Late+o.late, s.Refused+o.refused
	s.Slow += o.slow
	s.Patient += o.patient
	for boot, h := range o.latest {
		s.Waiting += h.Waiting
		s.PatientWaiting += h.PatientWaiting
		for _, c := range h.Classes {
			c.Replica = boot
			s.Classes = append(s.Classes, c)
		}
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

// look records in idleAtFirst the instances that were not seen before.
func (o *peerLoads) look(s *dispatch.Stats) {
	o.served = true
	if o.idleAtFirst == nil {
		o.idleAtFirst = map[cluster.InstanceID]time.Time{}
	}
	for id, since := range s.Instances {
		if _, ok := o.idleAtFirst[id]; !ok {
			o.idleAtFirst[id] = since
		}
	}
	if len(o.idleAtFirst) > 2*len(s.Instances)+16 {
		maps.DeleteFunc(o.idleAtFirst, func(id cluster.InstanceID, _ time.Time) bool { _, ok := s.Instances[id]; return !ok })
	}
}

// idle returns, for the instances that this replica has used, how many milliseconds each has been
// idle; Busy for those that are not.
func (o *peerLoads) idle(now time.Time, s *dispatch.Stats) map[cluster.InstanceID]int64 {
	idle := map[cluster.InstanceID]int64{}
	for id, since := range s.Instances {
		switch {
		case since.IsZero():
			idle[id] = Busy
		case since.After(o.idleAtFirst[id]):
			idle[id] = now.Sub(since).Milliseconds()
		}
	}
	return idle
}
