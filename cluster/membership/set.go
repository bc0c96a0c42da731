// Package membership decides over the members of a set, the instances that answer for one
// model together (Gillis §III-B): which are to be started or stopped, when the master is told
// its workers, and which state the set has. It does not carry anything out; package
// cluster/sets does. It is pure: state and now in, actions out.
//
// Begin reading at [Set] and [Set.Look].
package membership

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/backoff"
	"github.com/faas-infer/faas-infer/cluster"
)

// Set is what is known of one set. Its methods must not be called at the same time.
type Set struct {
	// spec is the set's as drivers see it, without node and nodes.
	spec  cluster.InstanceSpec
	newID func(number int) cluster.InstanceID
	// since is when it was first seen. starting: its start has not returned yet.
	since    time.Time
	starting bool
	// fresh: its master was not ready when it was first seen, so its members may not all have
	// been started.
	fresh   bool
	members []member
	// spares are instances with the number of a member that has another one.
	spares []spare

	// leads and looked are of the latest Look: whether this replica led, and whether there
	// was one.
	leads, looked bool
	// ready stays true once the set was ready, also while a worker is replaced.
	ready   bool
	readyAt time.Time
	// leaving: somebody stops it. why is why it is given up, "" if it is not, and blameless
	// whether that says nothing about the function. hidden: drivers were told that it could
	// not be started.
	leaving, hidden bool
	why             string
	blameless       bool
	// changing: somebody changes its share.
	changing bool
	// connected are the workers that the master was told last, as one text. connect is the
	// next attempt, failing the time since which attempts fail.
	connected string
	connect   attempt
	failing   time.Time
	stop      attempt
}

// member is the place of one member.
type member struct {
	// in is its latest instance; its ID is "" as long as none was seen.
	in   cluster.Instance
	node string
	// asked: its start has been asked for and has not returned. there: it exists.
	asked, there bool
	// since is when its latest instance was first seen or asked for. stopped is when the
	// backend said that it was stopped, zero if it did not.
	since, stopped time.Time
	// exits counts exits in a row of instances that lived for less than settled, early those
	// of instances that never became ready. The next start is not made before next.
	exits, early int
	next         time.Time
	// unequal: it has another share than the set's other members.
	unequal bool
	share   attempt
}

// spare is a second instance of a member.
type spare struct {
	in   cluster.Instance
	stop attempt
}

// attempt is something that is tried until it succeeds.
type attempt struct {
	running  bool
	failures int
	next     time.Time
}

// ended takes in a result. After an error the next attempt is made after a pause.
func (a *attempt) ended(now time.Time, err error) {
	a.running = false
	if err == nil {
		*a = attempt{}
		return
	}
	a.failures++
	a.next = now.Add(backoff.Pause(a.failures, firstPause, longestPause))
}

const (
	firstPause   = 200 * time.Millisecond
	longestPause = 30 * time.Second
	// settled is how long a worker must have lived before its exit no longer delays the next
	// start.
	settled = 30 * time.Second
	// maxEarly is the number of workers in a row that exit before they are ready, after which
	// the set is given up.
	maxEarly = 3
	// incomplete is how long a set that another provider has started may lack members. The
	// other provider may still be starting them.
	incomplete = 5 * time.Second
	// connectLimit is how long the master may refuse its workers' addresses.
	connectLimit = time.Minute
	// unseen is how long the backend may take to report the exit of a member that it has
	// stopped.
	unseen = 5 * time.Second
)

// New returns the set that is to be started by a spec, and the specs of its members. The caller
// starts them all and tells the set with Began, and then Whole. newID returns a new ID for a
// member that is not the master. The error says what is wrong with the spec.
func New(spec cluster.InstanceSpec, newID func(number int) cluster.InstanceID, now time.Time) (*Set, []cluster.InstanceSpec, error) {
	n := spec.Config.Members()
	if len(spec.Nodes) != 0 && len(spec.Nodes) != n {
		return nil, nil, fmt.Errorf("nodes has %d entries: it must be empty, or have one for each of the %d members", len(spec.Nodes), n)
	}
	s := &Set{spec: spec, newID: newID, since: now, starting: true, looked: true, members: make([]member, n)}
	s.spec.Nodes = nil
	specs := make([]cluster.InstanceSpec, n)
	for i := range s.members {
		s.members[i].node = spec.Node
		if len(spec.Nodes) > 0 {
			s.members[i].node = spec.Nodes[i]
		}
		specs[i] = s.ask(i, now)
	}
	return s, specs, nil
}

// Found returns the set of which a member was seen that another provider has started.
func Found(in cluster.Instance, newID func(number int) cluster.InstanceID, now time.Time) *Set {
	s := &Set{newID: newID, since: now, members: make([]member, in.Config.Members())}
	s.learn(in)
	s.Seen(in, now)
	return s
}

// learn takes the set's spec from a member's.
func (s *Set) learn(in cluster.Instance) {
	s.spec = in.InstanceSpec
	s.spec.ID, s.spec.Set, s.spec.Member = in.Set, "", 0
	s.spec.Config = in.Config.Sum()
}

// ask notes that a member is being started and returns its spec.
func (s *Set) ask(number int, now time.Time) cluster.InstanceSpec {
	spec := s.spec
	spec.Set, spec.Member, spec.Config, spec.Parked = s.spec.ID, number, s.spec.Config.Share(), false
	if number > 0 {
		spec.ID = s.newID(number)
	}
	m := &s.members[number]
	spec.Node = cmp.Or(m.node, s.members[0].node)
	m.in = cluster.Instance{InstanceSpec: spec, State: cluster.Starting, StartedAt: now}
	m.asked, m.there, m.since, m.stopped, m.unequal, m.share = true, false, now, time.Time{}, false, attempt{}
	return spec
}

// Whole says that the start of the set has returned without error.
func (s *Set) Whole() { s.starting = false }

// Began takes in the result of a member's start: in if err is nil.
func (s *Set) Began(number int, id cluster.InstanceID, in cluster.Instance, err error, now time.Time) {
	m := &s.members[number]
	if m.in.ID != id || !m.asked {
		return
	}
	m.asked = false
	exited := m.in.State == cluster.Exited
	switch {
	case err != nil && !exited:
		m.in.Reason = err.Error()
		s.exited(m, now)
	case err == nil && !exited && !m.there: // No event came before.
		m.there, m.in = true, in
	}
}

// Seen takes in the state of a member.
func (s *Set) Seen(in cluster.Instance, now time.Time) {
	if in.Member < 0 || in.Member >= len(s.members) || (in.Member == 0) != (in.ID == in.Set) {
		s.spare(in)
		return
	}
	m := &s.members[in.Member]
	switch {
	case m.in.ID == in.ID && m.in.State == cluster.Exited:
	case m.in.ID == in.ID:
		s.advance(m, in, now)
	case m.there || m.asked:
		s.spare(in)
	case in.State != cluster.Exited:
		s.enter(m, in, now)
	}
}

// enter makes an instance that was not started by this replica a member.
func (s *Set) enter(m *member, in cluster.Instance, now time.Time) {
	m.since, m.stopped, m.share = now, time.Time{}, attempt{}
	if in.Member == 0 {
		s.learn(in)
		s.fresh = in.ReadyAt.IsZero()
	}
	m.in = cluster.Instance{}
	s.advance(m, in, now)
}

// advance takes in the next state of a member's present instance.
func (s *Set) advance(m *member, in cluster.Instance, now time.Time) {
	was := m.in.State
	m.in = in
	if in.State == cluster.Exited {
		if m.asked {
			m.there = false
		}
		s.exited(m, now)
		return
	}
	m.there, m.node = true, cmp.Or(in.Node, m.node)
	if in.Member == 0 && !s.leads && !s.changing {
		// The leader knows more than the backend. The others learn from it.
		s.spec.Config, s.spec.Parked = in.Config.Sum(), in.Parked
	}
	if in.State == cluster.Ready && was != cluster.Ready {
		m.early = 0
		m.unequal = in.Member > 0 && s.differs(m)
	}
}

// differs reports whether a member has another share than the set says.
func (s *Set) differs(m *member) bool {
	share := s.spec.Config.Share()
	return m.in.Config.Resources != share.Resources || m.in.Config.Most != share.Most || m.in.Parked != s.spec.Parked
}

// exited notes the exit of a member's instance, and makes a spare one its next.
func (s *Set) exited(m *member, now time.Time) {
	if now.Sub(m.since) >= settled {
		m.exits = 0
	}
	m.exits++
	if m.early++; !m.in.ReadyAt.IsZero() {
		m.early = 0
	}
	m.next = now
	if m.exits > 1 {
		m.next = now.Add(backoff.Pause(m.exits-1, firstPause, longestPause))
	}
	m.there, m.in.State = false, cluster.Exited
	s.failing, s.connect.failures, s.connect.next = time.Time{}, 0, time.Time{}
	number := m.in.Member
	i := slices.IndexFunc(s.spares, func(x spare) bool { return x.in.Member == number && !x.stop.running })
	if i >= 0 && !m.asked && number > 0 {
		in := s.spares[i].in
		s.spares = slices.Delete(s.spares, i, i+1)
		s.enter(m, in, now)
	}
}

// spare takes in the state of a second instance.
func (s *Set) spare(in cluster.Instance) {
	i := slices.IndexFunc(s.spares, func(x spare) bool { return x.in.ID == in.ID })
	switch {
	case i >= 0 && in.State == cluster.Exited:
		s.spares = slices.Delete(s.spares, i, i+1)
	case i >= 0:
		s.spares[i].in = in
	case in.State != cluster.Exited:
		s.spares = append(s.spares, spare{in: in})
	}
}

// Gone reports whether no member is left and none is being started, and the set's start has
// returned.
func (s *Set) Gone() bool { return !s.starting && s.Empty() }

// Empty is Gone, also of a set whose start has not returned.
func (s *Set) Empty() bool {
	return len(s.spares) == 0 && !slices.ContainsFunc(s.members, func(m member) bool { return m.there || m.asked })
}

// ends reports whether the set does not serve any more and never will.
func (s *Set) ends() bool {
	master := &s.members[0]
	return s.leaving || s.why != "" || master.in.ID != "" && (master.in.State == cluster.Stopping || master.in.State == cluster.Exited)
}

// Instance returns the set as drivers see it. shown is false while it is being started, if it
// could not be, and if its master was never seen.
func (s *Set) Instance() (in cluster.Instance, shown bool) {
	master := &s.members[0]
	if s.starting || s.hidden || master.in.ID == "" {
		return in, false
	}
	in.InstanceSpec = s.spec
	in.Node, in.Nodes = s.nodes()
	in.Network, in.Address, in.StartedAt, in.ReadyAt = master.in.Network, master.in.Address, master.in.StartedAt, s.readyAt
	switch {
	case s.Gone():
		in.State, in.Reason = cluster.Exited, cmp.Or(s.why, master.in.Reason)
		in.Blameless = s.blameless || s.why == "" && master.in.Blameless
	case s.ends():
		in.State = cluster.Stopping
	case s.ready:
		in.State = cluster.Ready
	default:
		in.State = cluster.Starting
	}
	return in, true
}

// partial reports whether another provider may not have started all members.
func (s *Set) partial() bool {
	return s.fresh && slices.ContainsFunc(s.members, func(m member) bool { return m.in.ID == "" })
}

// nodes returns the master's node, and all nodes by member if they differ.
func (s *Set) nodes() (node string, nodes []string) {
	node = s.members[0].node
	differ := false
	for i := range s.members {
		n := cmp.Or(s.members[i].node, node)
		nodes, differ = append(nodes, n), differ || n != node
	}
	if !differ {
		nodes = nil
	}
	return node, nodes
}

// Members returns the members that exist and have not begun to stop, the master first.
func (s *Set) Members() (all []cluster.Instance) {
	for i := range s.members {
		if m := &s.members[i]; m.there && m.in.State != cluster.Stopping {
			all = append(all, m.in)
		}
	}
	return all
}

// Remaining returns the members that are to be stopped next, of those that the backend has not
// stopped: the master, which answers what it has, and once tried reports true of it the others.
func (s *Set) Remaining(tried func(cluster.InstanceID) bool) (ids []cluster.InstanceID) {
	for i := range s.members {
		m := &s.members[i]
		if !m.there || !m.stopped.IsZero() || tried(m.in.ID) {
			continue
		}
		if ids = append(ids, m.in.ID); i == 0 {
			return ids
		}
	}
	for _, x := range s.spares {
		if !tried(x.in.ID) {
			ids = append(ids, x.in.ID)
		}
	}
	return ids
}

// String describes the set's members, for tests and logs.
func (s *Set) String() string {
	var text strings.Builder
	for i := range s.members {
		m := &s.members[i]
		fmt.Fprintf(&text, "%d:%s", i, cmp.Or(string(m.in.State), "unknown"))
		if m.asked {
			text.WriteString("(asked)")
		}
		text.WriteByte(' ')
	}
	return strings.TrimSpace(text.String())
}
