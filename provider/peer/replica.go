package peer

import (
	"context"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/dispatch"
)

// leaveAlone is how long an instance may be kept out of use at the leader's word; by then
// it is gone or parked, or the leader is.
const leaveAlone = 30 * time.Second

// Others are the provider's other replicas; a [Group] reaches them. A function's queue is
// in one replica at a time, which need not be the leader; what a look at the load must
// know of it, and what must be done there before an instance stops, goes through here.
type Others interface {
	// Loads returns what each of them last told; what was executed is told once. It
	// does not wait.
	Loads() []Load
	// Wake has the leader look at the load now. It does not wait.
	Wake()
	// Drain has the others give an instance nothing new, and returns when none of
	// them has anything on it, or with ctx.
	Drain(ctx context.Context, id cluster.InstanceID)
	// Park has the others give an instance nothing until Serve; false, and nothing
	// has changed, if one of them needs it.
	Park(ctx context.Context, id cluster.InstanceID) bool
	// Serve tells the others that an instance takes batches, and with which config.
	// It does not wait.
	Serve(id cluster.InstanceID, config cluster.Config)
}

// Controlled is the controller of models that a [Replica] is for.
type Controlled interface {
	// Wake has it look at the load now.
	Wake()
	// EachStats calls each with what this replica's own dispatchers have seen.
	EachStats(each func(function string, s dispatch.Stats))
	// Leave has the dispatcher give an instance nothing new, and returns when nothing
	// of it is in flight, or with ctx's error.
	Leave(ctx context.Context, id cluster.InstanceID) error
	// Rest has the dispatcher give an instance nothing until Resume; false if it needs
	// it, and left if it gave it something until now.
	Rest(id cluster.InstanceID) (rests, left bool)
	// Resume has an instance take batches with a config, the one that it has if that
	// is the zero one.
	Resume(id cluster.InstanceID, config cluster.Config)
}

// Replica is this replica of the provider as its controller of models knows it: it tells
// who leads and what the others have seen, and does what these must know of. A nil
// Replica is a provider alone. It is safe for concurrent use, and may be called with the
// controller's lock held.
type Replica struct {
	leads  func() bool
	others Others
	local  Controlled

	mu sync.Mutex
	// led: this replica was leading at its latest turn.
	led bool
	// lost are the instances that broke off an exchange with this replica, while
	// another leads; ran is what was executed for it.
	lost map[cluster.InstanceID]string
	ran  chronicle
	// asked is when the leader had this replica leave instances alone.
	asked map[cluster.InstanceID]time.Time
	// functions is what the others have told, by function.
	functions map[string]*elsewhere
}

// NewReplica returns the replica that leads when leads says so; others may be nil where
// only the lead changes.
func NewReplica(leads func() bool, others Others) *Replica {
	return &Replica{leads: leads, others: others, lost: map[cluster.InstanceID]string{}, asked: map[cluster.InstanceID]time.Time{}, functions: map[string]*elsewhere{}}
}

// Attach names the controller. It is called once, before a group is attached.
func (r *Replica) Attach(local Controlled) {
	if r != nil {
		r.local = local
	}
}

// Alone reports whether there is no other replica, now or later.
func (r *Replica) Alone() bool { return r == nil }

// Leads reports whether this replica starts and stops instances. The others dispatch to
// all instances, learn the same and plan along, so that each can go on where the leader
// leaves.
func (r *Replica) Leads() bool { return r == nil || r.leads() }

// Led reports whether this replica was leading at its latest turn.
func (r *Replica) Led() bool {
	if r == nil {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.led
}

// Turn notes whether this replica leads, which is what it is to be during one look, and
// whether that has changed. Whoever begins to lead takes over first; after an error it
// does not lead yet.
func (r *Replica) Turn(takeOver func() error) (leads, changed bool, err error) {
	if r == nil {
		return true, false, nil
	}
	if leads = r.leads(); leads == r.Led() {
		return leads, false, nil
	}
	if leads {
		if err := takeOver(); err != nil {
			return false, false, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.led = leads
	if leads {
		clear(r.lost)
	}
	return leads, true, nil
}

// News is what the others have told since the last look.
type News struct {
	// Lost are instances that another replica has lost, with the reason.
	Lost map[cluster.InstanceID]string
	// Overdue are instances that were to be left alone for something that has not
	// come: Settled has to be said of them.
	Overdue []cluster.InstanceID
}

// Listen takes in what the others have told.
func (r *Replica) Listen(now time.Time) (n News) {
	if r == nil {
		return n
	}
	var loads []Load
	if r.others != nil {
		loads = r.others.Loads()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	present := make(map[string]bool, len(loads))
	n.Lost = map[cluster.InstanceID]string{}
	for _, l := range loads {
		present[l.Boot] = true
		for name, load := range l.Functions {
			r.of(name).Take(l.Boot, load, l.At)
		}
		for _, e := range l.Executed {
			r.of(e.Function).Note(e)
		}
		for id, why := range l.Lost {
			n.Lost[id] = why
		}
	}
	for _, e := range r.functions {
		e.Keep(present)
	}
	for id, since := range r.asked {
		if now.Sub(since) > leaveAlone {
			n.Overdue = append(n.Overdue, id)
		}
	}
	return n
}

// of is what the others have told of a function.
func (r *Replica) of(function string) *elsewhere {
	e, ok := r.functions[function]
	if !ok {
		e = &elsewhere{}
		r.functions[function] = e
	}
	return e
}

// Settled notes that an instance is not to be left alone any more.
func (r *Replica) Settled(id cluster.InstanceID) {
	if r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.asked, id)
	}
}

// Add adds to what this replica's dispatcher has seen of a function what the others have.
func (r *Replica) Add(function string, s *dispatch.Stats) {
	if r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		e := r.of(function)
		e.look(s)
		e.Add(s)
	}
}

// Executed appends to what this replica's dispatcher has executed of a function what the
// others have, and keeps the former for these.
func (r *Replica) Executed(function string, own []dispatch.Executed) []dispatch.Executed {
	if r == nil {
		return own
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ran.Add(function, own)
	return r.of(function).TakeExecuted(own)
}

// Forget drops what was told of a function that was removed.
func (r *Replica) Forget(function string) {
	if r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.functions, function)
	}
}

// WakeLeader has the replica that can start instances look at the load now: this one by
// own, or the leader.
func (r *Replica) WakeLeader(own func()) {
	if r.Leads() || r.others == nil {
		own()
		return
	}
	r.others.Wake()
}

// Drain has the others give an instance nothing new, and returns when none of them has
// anything on it, or with ctx.
func (r *Replica) Drain(ctx context.Context, id cluster.InstanceID) {
	if r != nil && r.others != nil {
		r.others.Drain(ctx, id)
	}
}

// Release has the others give an instance nothing that is to be parked; false, and
// nothing has changed, if one of them needs it.
func (r *Replica) Release(ctx context.Context, id cluster.InstanceID) bool {
	return r == nil || r.others == nil || r.others.Park(ctx, id)
}

// Announce tells the others that an instance takes batches, and with which config.
func (r *Replica) Announce(id cluster.InstanceID, config cluster.Config) {
	if r != nil && r.others != nil {
		r.others.Serve(id, config)
	}
}

// Lost keeps for the leader that an instance broke off an exchange.
func (r *Replica) Lost(id cluster.InstanceID, cause error) {
	if r == nil {
		return
	}
	why := "it broke off an exchange"
	if cause != nil {
		why = cause.Error()
	}
	r.mu.Lock()
	r.lost[id] = why
	r.mu.Unlock()
	if r.others != nil {
		r.others.Wake()
	}
}

// Gone forgets an instance that is no more.
func (r *Replica) Gone(id cluster.InstanceID) {
	if r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.lost, id)
		delete(r.asked, id)
	}
}
