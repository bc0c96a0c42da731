package peer

import (
	"context"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/dispatch"
)

// maxLeftAlone is how long this replica leaves an instance alone at the leader's request. By
// then the leader has stopped or parked the instance, or the leader itself is gone.
const maxLeftAlone = 30 * time.Second

// Others reaches the provider's other replicas; [Group] implements it. A function's queue is at
// one replica, which may not be the leader. Through Others the leader learns the load there, and
// makes that replica stop using an instance before it stops the instance.
type Others interface {
	// Loads returns the latest load of each of them, and each executed batch once. It
	// does not wait.
	Loads() []Load
	// Wake makes the leader look at the load now. It does not wait.
	Wake()
	// Drain makes the others send an instance nothing new. It returns when none of
	// them has a request on it, or when ctx ends.
	Drain(ctx context.Context, id cluster.InstanceID)
	// Park makes the others send an instance nothing until Serve. If one of them needs
	// it, Park returns false and changes nothing.
	Park(ctx context.Context, id cluster.InstanceID) bool
	// Serve tells the others that an instance takes batches, and with which config.
	// It does not wait.
	Serve(id cluster.InstanceID, config cluster.Config)
}

// Controlled is the controller of models that a [Replica] belongs to.
type Controlled interface {
	// Wake makes it look at the load now.
	Wake()
	// EachStats calls each with the stats of this replica's own dispatchers that had requests.
	EachStats(each func(function string, s dispatch.Stats))
	// Leave makes the dispatcher send an instance nothing new. It returns when the
	// instance has no request in flight, or with ctx's error.
	Leave(ctx context.Context, id cluster.InstanceID) error
	// Rest makes the dispatcher send an instance nothing until Resume. rests is false if
	// the dispatcher needs the instance. left: the dispatcher used the instance until now.
	Rest(id cluster.InstanceID) (rests, left bool)
	// Resume makes an instance take batches with a config; the zero config means the one
	// that it has.
	Resume(id cluster.InstanceID, config cluster.Config)
}

// Replica is this replica of the provider as its controller of models sees it. It says whether
// this replica leads and what the others have seen, and passes on what they must know. A nil
// Replica is a provider that never has others. It is safe for concurrent use, and may be called
// with the controller's lock held.
type Replica struct {
	leads  func() bool
	others Others
	local  Controlled

	mu sync.Mutex
	// led: this replica led at its latest turn.
	led bool
	// lost are the instances that broke off an exchange with this replica while another
	// one leads. ran are the batches that this replica had executed.
	lost map[cluster.InstanceID]string
	ran  executedLog
	// leftAlone holds when the leader asked this replica to leave each instance alone.
	leftAlone map[cluster.InstanceID]time.Time
	// functions holds what the others have reported, by function. Listen drops those that are gone: a
	// replica that has not heard of a deletion yet reports the function once more after Forget.
	functions map[string]*peerLoads
}

// NewReplica returns a replica that leads whenever leads returns true. others may be nil if the
// replicas do not exchange loads.
func NewReplica(leads func() bool, others Others) *Replica {
	return &Replica{leads: leads, others: others, lost: map[cluster.InstanceID]string{}, leftAlone: map[cluster.InstanceID]time.Time{}, functions: map[string]*peerLoads{}}
}

// Attach sets the controller. Call it once, before attaching the replica to a group.
func (r *Replica) Attach(local Controlled) {
	if r != nil {
		r.local = local
	}
}

// Alone reports whether the provider never has other replicas.
func (r *Replica) Alone() bool { return r == nil }

// Leads reports whether this replica starts and stops instances. The others also dispatch to all
// instances, learn and plan, so that any of them can take over from the leader.
func (r *Replica) Leads() bool { return r == nil || r.leads() }

// Led reports whether this replica led at its latest turn.
func (r *Replica) Led() bool {
	if r == nil {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.led
}

// Turn decides whether this replica leads during one look, and reports whether that has changed.
// A replica that begins to lead first calls takeOver. If that fails, it does not lead yet.
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

// News is what the others have reported since the last look.
type News struct {
	// Lost maps instances that another replica has lost to the reason.
	Lost map[cluster.InstanceID]string
	// Overdue are instances that this replica has left alone for too long: the leader
	// neither stopped nor parked them. Call Settled for each.
	Overdue []cluster.InstanceID
}

// Listen reads the others' loads and returns what is new.
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
	present := make(map[string]map[string]FunctionLoad, len(loads))
	n.Lost = map[cluster.InstanceID]string{}
	for _, l := range loads {
		present[l.Boot] = l.Functions
		for name, load := range l.Functions {
			r.of(name).Take(l.Boot, load, load.at)
		}
		for _, e := range l.Executed {
			r.of(e.Function).Note(e)
		}
		for id, why := range l.Lost {
			n.Lost[id] = why
		}
	}
	for name, e := range r.functions {
		e.Keep(func(boot string) bool { _, there := present[boot][name]; return there })
		if e.abandoned() {
			delete(r.functions, name)
		}
	}
	for id, since := range r.leftAlone {
		if now.Sub(since) > maxLeftAlone {
			n.Overdue = append(n.Overdue, id)
		}
	}
	return n
}

// of returns what the others have reported about a function. The lock is held.
func (r *Replica) of(function string) *peerLoads {
	e, ok := r.functions[function]
	if !ok {
		e = &peerLoads{}
		r.functions[function] = e
	}
	return e
}

// Settled ends leaving an instance alone.
func (r *Replica) Settled(id cluster.InstanceID) {
	if r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.leftAlone, id)
	}
}

// Add adds what the others have seen of a function to the stats of this replica's dispatcher.
func (r *Replica) Add(function string, s *dispatch.Stats) {
	if r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		e := r.of(function)
		e.look(s)
		e.Add(s)
	}
}

// Arrivals is how many requests of a function the others have seen, as [Replica.Add] adds them.
func (r *Replica) Arrivals(function string) uint64 {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok := r.functions[function]
	if !ok {
		return 0
	}
	e.served = true
	return e.arrivals
}

// Executed appends the others' executed batches of a function to own, those of this replica. It
// keeps own for the others to read.
func (r *Replica) Executed(function string, own []dispatch.Executed) []dispatch.Executed {
	if r == nil {
		return own
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ran.Add(function, own)
	return r.of(function).TakeExecuted(own)
}

// Forget drops what the others have reported about a removed function.
func (r *Replica) Forget(function string) {
	if r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.functions, function)
	}
}

// WakeLeader makes the leader look at the load now. If this replica leads, it calls own.
func (r *Replica) WakeLeader(own func()) {
	if r.Leads() || r.others == nil {
		own()
		return
	}
	r.others.Wake()
}

// Drain makes the others send an instance nothing new. It returns when none of them has a
// request on it, or when ctx ends.
func (r *Replica) Drain(ctx context.Context, id cluster.InstanceID) {
	if r != nil && r.others != nil {
		r.others.Drain(ctx, id)
	}
}

// Release makes the others send nothing to an instance that is to be parked. If one of them needs
// it, Release returns false and changes nothing.
func (r *Replica) Release(ctx context.Context, id cluster.InstanceID) bool {
	return r == nil || r.others == nil || r.others.Park(ctx, id)
}

// Announce tells the others that an instance takes batches, and with which config.
func (r *Replica) Announce(id cluster.InstanceID, config cluster.Config) {
	if r != nil && r.others != nil {
		r.others.Serve(id, config)
	}
}

// Lost records that an instance broke off an exchange, and wakes the leader, which then reads it.
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

// Gone forgets an instance that has exited.
func (r *Replica) Gone(id cluster.InstanceID) {
	if r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.lost, id)
		delete(r.leftAlone, id)
	}
}
