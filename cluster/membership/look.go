package membership

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// Do says what is to be done.
type Do string

// What may be to be done.
const (
	// Start: start the member of Spec, then call Began.
	Start Do = "start"
	// Connect: tell the master its workers, Members, then call Connected.
	Connect Do = "connect"
	// Stop: stop the whole set, as Remaining says, because of Why, then call Stopped.
	Stop Do = "stop"
	// Dismiss: stop the instance ID, which is one too many, then call Dismissed.
	Dismiss Do = "dismiss"
	// Share: give the member ID the share that the others have, then call Shared.
	Share Do = "share"
)

// Action is one thing that is to be done. It must be done, and its result told, once.
type Action struct {
	Do      Do
	Spec    cluster.InstanceSpec
	ID      cluster.InstanceID
	Members []cluster.Instance
	Why     string
}

// agenda collects what is due and when to look again.
type agenda struct {
	now  time.Time
	due  []Action
	next time.Time
}

// wait looks again at a time. It reports whether that time has come.
func (a *agenda) wait(at time.Time) (come bool) {
	if !a.now.Before(at) {
		return true
	}
	if a.next.IsZero() || at.Before(a.next) {
		a.next = at
	}
	return false
}

// begin adds an action if its attempt is due.
func (a *agenda) begin(t *attempt, x Action) {
	if !t.running && a.wait(t.next) {
		t.running = true
		a.due = append(a.due, x)
	}
}

// Look returns what is due, and when to look again if nothing is seen or told before; zero for
// never. Only a replica of the provider that leads has something to do. It begins to lead with a
// Look that says so.
func (s *Set) Look(now time.Time, leads bool) (due []Action, next time.Time) {
	a := &agenda{now: now}
	if leads && !s.leads {
		s.begin()
	}
	first := !s.looked
	s.leads, s.looked = leads, true
	s.forget(a)
	if s.starting || s.Gone() {
		return nil, a.next
	}
	all := s.allReady()
	if all && !s.ready && (first || !leads) && !s.ends() {
		s.becomeReady() // Another provider has told its master, or will.
	}
	if !leads || s.leaving {
		return nil, a.next
	}
	s.dismiss(a)
	if s.over(a) {
		a.begin(&s.stop, Action{Do: Stop, Why: cmp.Or(s.why, "its master is gone")})
		return a.due, a.next
	}
	if s.ends() || s.members[0].in.ID == "" {
		return a.due, a.next
	}
	s.replace(a)
	if s.why != "" {
		a.begin(&s.stop, Action{Do: Stop, Why: s.why})
		return a.due, a.next
	}
	s.equalise(a)
	if workers := s.workers(); s.allReady() && workers != s.connected {
		a.begin(&s.connect, Action{Do: Connect, Members: s.Members()})
	}
	return a.due, a.next
}

// begin makes this replica, which begins to lead, connect the set again and check the shares:
// the former leader may have stopped halfway.
func (s *Set) begin() {
	s.connected, s.failing = "", time.Time{}
	s.connect.failures, s.connect.next = 0, time.Time{}
	for i := range s.members {
		if m := &s.members[i]; i > 0 && m.there && m.in.State == cluster.Ready {
			m.unequal = s.differs(m)
		}
	}
}

// forget gives up waiting for the exit of members that the backend has stopped.
func (s *Set) forget(a *agenda) {
	for i := range s.members {
		if m := &s.members[i]; m.there && !m.stopped.IsZero() && a.wait(m.stopped.Add(unseen)) {
			m.in.Reason = "stopped"
			s.exited(m, a.now)
		}
	}
}

func (s *Set) allReady() bool {
	return !slices.ContainsFunc(s.members, func(m member) bool { return !m.there || m.in.State != cluster.Ready })
}

// becomeReady makes the set ready since its last member is.
func (s *Set) becomeReady() {
	s.ready = true
	for i := range s.members {
		if at := s.members[i].in.ReadyAt; at.After(s.readyAt) {
			s.readyAt = at
		}
	}
}

// workers returns the IDs of the workers as one text.
func (s *Set) workers() string {
	var ids []string
	for i := range s.members[1:] {
		ids = append(ids, string(s.members[i+1].in.ID))
	}
	return strings.Join(ids, " ")
}

// dismiss stops second instances of members. It keeps them while the first one is about to go.
func (s *Set) dismiss(a *agenda) {
	for i := range s.spares {
		x := &s.spares[i]
		if n := x.in.Member; n > 0 && n < len(s.members) && s.members[n].in.State == cluster.Stopping {
			continue
		}
		a.begin(&x.stop, Action{Do: Dismiss, ID: x.in.ID})
	}
}

// over reports whether the leader is to stop what is left of the set.
func (s *Set) over(a *agenda) bool {
	master := &s.members[0]
	switch {
	case s.why != "":
		return true
	case master.in.ID == "":
		return a.wait(s.since.Add(incomplete))
	case master.in.State == cluster.Exited:
		return true
	case s.partial():
		if !a.wait(s.since.Add(incomplete)) {
			return false
		}
		s.why = "another provider has not started all of its members"
		return true
	}
	return false
}

// replace starts the workers that are missing, or gives the set up.
func (s *Set) replace(a *agenda) {
	if s.partial() {
		return // They may be on their way.
	}
	for i := range s.members[1:] {
		m := &s.members[i+1]
		switch {
		case m.there || m.asked:
		case m.early >= maxEarly:
			s.why = fmt.Sprintf("member %d of %d exited %d times before it was ready: %s", i+1, len(s.members), m.early, m.in.Reason)
			s.blameless = m.in.Blameless
			return
		case a.wait(m.next):
			a.due = append(a.due, Action{Do: Start, Spec: s.ask(i+1, a.now)})
		}
	}
}

// equalise gives replaced workers the share of the others.
func (s *Set) equalise(a *agenda) {
	if s.changing {
		return
	}
	for i := range s.members {
		if m := &s.members[i]; m.unequal && m.there && m.in.State == cluster.Ready {
			a.begin(&m.share, Action{Do: Share, ID: m.in.ID})
		}
	}
}

// Connected takes in that the master was told its workers, or why not. members are those of the
// action.
func (s *Set) Connected(members []cluster.Instance, err error, now time.Time) {
	s.connect.ended(now, err)
	switch {
	case err == nil:
		s.failing = time.Time{}
		var ids []string
		for _, in := range members[1:] {
			ids = append(ids, string(in.ID))
		}
		if s.connected = strings.Join(ids, " "); !s.ready && !s.ends() && s.connected == s.workers() && s.allReady() {
			s.ready, s.readyAt = true, now
		}
	case s.failing.IsZero():
		s.failing = now
	case now.Sub(s.failing) >= connectLimit && s.allReady():
		s.why = fmt.Sprintf("its master did not take the addresses of its workers within %v: %v", connectLimit, err)
	}
}

// Leave says that somebody stops the set. It serves no more, and Look stops nothing of it.
func (s *Set) Leave() { s.leaving = true }

// Abandon says that the set's start has failed, and that members are left that could not be
// stopped. Drivers see nothing of it; Look stops them.
func (s *Set) Abandon() {
	s.starting, s.hidden, s.leaving = false, true, false
	s.why = "it could not be started"
}

// Left takes in that the backend has stopped one member.
func (s *Set) Left(id cluster.InstanceID, now time.Time) {
	for i := range s.members {
		if m := &s.members[i]; m.in.ID == id && m.there {
			m.stopped = now
		}
	}
	s.spares = slices.DeleteFunc(s.spares, func(x spare) bool { return x.in.ID == id })
}

// Stopped takes in the end of a [Stop] action.
func (s *Set) Stopped(err error, now time.Time) { s.stop.ended(now, err) }

// Dismissed takes in the end of a [Dismiss] action.
func (s *Set) Dismissed(id cluster.InstanceID, err error, now time.Time) {
	if err == nil {
		s.Left(id, now)
		return
	}
	for i := range s.spares {
		if x := &s.spares[i]; x.in.ID == id {
			x.stop.ended(now, err)
		}
	}
}

// Change begins a change of the set's share. It returns the members whose share is to be changed
// now; a worker that is being replaced gets it when it is ready. It returns an error if the set
// does not serve.
func (s *Set) Change() (members []cluster.Instance, err error) {
	if in, shown := s.Instance(); !shown || in.State != cluster.Ready {
		return nil, fmt.Errorf("it is %s: only a set that is ready has a share that can be changed", cmp.Or(in.State, cluster.Starting))
	}
	s.changing = true
	return slices.DeleteFunc(s.Members(), func(in cluster.Instance) bool { return in.State != cluster.Ready }), nil
}

// Unchanged ends a change that has failed: all members have their former share, except for those
// that could not get it back. They get it later.
func (s *Set) Unchanged(except []cluster.InstanceID) {
	s.changing = false
	for i := range s.members {
		m := &s.members[i]
		m.unequal = m.unequal || slices.Contains(except, m.in.ID)
	}
}

// Changed ends a change: all members that Change returned have the new share.
func (s *Set) Changed(members []cluster.Instance, config cluster.Config, parked bool) {
	s.changing, s.spec.Config, s.spec.Parked = false, config, parked
	changed := map[cluster.InstanceID]bool{}
	for _, in := range members {
		changed[in.ID] = true
	}
	for i := range s.members {
		m := &s.members[i]
		if changed[m.in.ID] {
			m.in.Config, m.in.Parked, m.unequal = config.Share(), parked, false
		} else if i > 0 && m.there && m.in.State == cluster.Ready {
			m.unequal = s.differs(m)
		}
	}
}

// Shared takes in the end of a [Share] action: the member has this share now, or the former one.
func (s *Set) Shared(id cluster.InstanceID, config cluster.Config, parked bool, err error, now time.Time) {
	for i := range s.members {
		m := &s.members[i]
		if m.in.ID != id {
			continue
		}
		if m.share.ended(now, err); err == nil {
			m.in.Config, m.in.Parked = config, parked
			m.unequal = s.differs(m)
		}
	}
}
