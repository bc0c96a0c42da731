// Package sets makes sets of members on a [cluster.Backend]. A set is what answers for a model
// that is cut over several instances (Gillis §III-B): drivers above see one instance, and the
// backend below starts a process or pod for each member. Instances that are no sets pass through
// unchanged.
//
// Package membership decides which members to start and stop; this package carries that out and
// tells the master its workers. It keeps no state of its own: the members' specs say to which set
// they belong, so the next provider, or another replica, finds the sets again.
//
// Begin reading at [New] and [Backend.Start].
package sets

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/cluster/events"
	"github.com/faas-infer/faas-infer/cluster/membership"
)

// ErrClosed means that the backend was closed.
var ErrClosed = errors.New("the backend is closed")

// Options configure a backend of sets.
type Options struct {
	// Leads reports whether this replica of the provider starts and stops members; nil if
	// there is only one. It is called every second and after events, so it must be fast.
	Leads func() bool
	// Connect tells a set's master where its workers are. It is called again after an error,
	// and after a worker was replaced. Nil means [Connect] with Dial.
	Connect func(ctx context.Context, master cluster.Instance, workers []cluster.Instance) error
	// Dial connects to a master; nil means net.Dialer's.
	Dial   Dial
	Logger zerolog.Logger
}

// Backend makes sets. It is a [cluster.Backend].
type Backend struct {
	under   cluster.Backend
	options Options
	log     zerolog.Logger
	events  *events.Queue

	// ctx ends with Close, or with the events of the backend below; work counts the goroutines.
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
	// wake makes run look at all sets.
	wake chan struct{}

	mu     sync.Mutex
	closed bool
	// announced: Instances was called, so changes are now sent as events.
	announced bool
	sets      map[cluster.InstanceID]*set
}

var _ cluster.Backend = (*Backend)(nil)

// set is one set. Backend.mu guards it, except for id, ctx and change.
type set struct {
	*membership.Set
	id cluster.InstanceID
	// ctx ends when somebody stops the set: starts of members and connections then break off.
	ctx    context.Context
	cancel context.CancelFunc
	// change is full while somebody changes the members' shares.
	change chan struct{}
	// changed is closed, and replaced, whenever something is seen of the set or done to it.
	changed chan struct{}
	// shown is what drivers were told last; known is false if they were told nothing.
	shown cluster.Instance
	known bool
}

// New returns a backend that makes sets on the backend under, which it closes when it is closed.
// It takes over the sets of which under has members. It reads under's events from now on.
func New(ctx context.Context, under cluster.Backend, o Options) (*Backend, error) {
	if o.Leads == nil {
		o.Leads = func() bool { return true }
	}
	if o.Dial == nil {
		o.Dial = new(net.Dialer).DialContext
	}
	if o.Connect == nil {
		o.Connect = func(ctx context.Context, master cluster.Instance, workers []cluster.Instance) error {
			return Connect(ctx, o.Dial, master, workers)
		}
	}
	found, err := under.Instances(ctx)
	if err != nil {
		return nil, fmt.Errorf("find members of sets: %w", err)
	}
	b := &Backend{
		under: under, options: o, log: o.Logger.With().Str("component", "cluster/sets").Logger(), events: events.NewQueue(),
		wake: make(chan struct{}, 1), sets: map[cluster.InstanceID]*set{},
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for _, in := range found {
		if in.Set != "" && in.State != cluster.Exited {
			b.member(in, now)
		}
	}
	for _, s := range b.sets {
		b.look(s, now)
	}
	b.work.Go(func() { b.events.Run(b.ctx) })
	b.work.Go(b.run)
	return b, nil
}

// isSet reports whether a spec is a set's, and not a member's or that of an ordinary instance.
func isSet(spec *cluster.InstanceSpec) bool { return spec.Config.Parts > 1 && spec.Set == "" }

// memberID returns a new ID for a member of a set. It is a DNS label, so a long name is cut.
func memberID(set cluster.InstanceID, number int) cluster.InstanceID {
	var b [3]byte
	rand.Read(b[:])
	tail := fmt.Sprintf("-%d-%s", number, hex.EncodeToString(b[:]))
	return cluster.InstanceID(strings.TrimRight(string(set[:min(len(set), 63-len(tail))]), "-") + tail)
}

// put adds a set. The lock is held.
func (b *Backend) put(id cluster.InstanceID, of *membership.Set) *set {
	s := &set{Set: of, id: id, change: make(chan struct{}, 1), changed: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancel(b.ctx)
	b.sets[id] = s
	return s
}

// member takes in what was seen of a member, and returns its set. The lock is held.
func (b *Backend) member(in cluster.Instance, now time.Time) *set {
	if s, ok := b.sets[in.Set]; ok {
		s.Seen(in, now)
		return s
	}
	id := in.Set
	return b.put(id, membership.Found(in, func(number int) cluster.InstanceID { return memberID(id, number) }, now))
}

// run follows the events of the backend below, and looks at the sets when it is time, until
// Close.
func (b *Backend) run() {
	timer := time.NewTimer(leadsPeriod)
	defer timer.Stop()
	for {
		select {
		case in, ok := <-b.under.Events():
			if !ok { // Somebody has closed the backend below.
				b.cancel()
				return
			}
			b.seen(in)
			continue
		case <-b.wake:
		case <-timer.C:
		case <-b.ctx.Done():
			return
		}
		timer.Reset(b.lookAll())
	}
}

// seen passes on the event of an ordinary instance, and takes in that of a member.
func (b *Backend) seen(in cluster.Instance) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if in.Set == "" {
		b.emit(in)
		return
	}
	if _, known := b.sets[in.Set]; !known && in.State == cluster.Exited {
		return
	}
	now := time.Now()
	b.look(b.member(in, now), now)
}

// emit queues an event. The lock is held.
func (b *Backend) emit(in cluster.Instance) {
	if b.announced {
		b.events.Push(in)
	}
}

// leadsPeriod is the time between two questions whether this replica leads.
const leadsPeriod = time.Second

// lookAll looks at all sets and returns the time until the next look.
func (b *Backend) lookAll() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now, pause := time.Now(), leadsPeriod
	for _, s := range b.sets {
		if next := b.settle(s, now); !next.IsZero() {
			pause = min(pause, next.Sub(now))
		}
	}
	return max(pause, time.Millisecond)
}

// look begins what is due for a set, and makes run look again in time. The lock is held.
func (b *Backend) look(s *set, now time.Time) {
	if next := b.settle(s, now); next.IsZero() || next.Sub(now) >= leadsPeriod {
		return // The next regular look is early enough.
	}
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// settle begins what is due for a set, tells drivers what has changed, and forgets the set if
// nothing of it is left. The lock is held.
func (b *Backend) settle(s *set, now time.Time) (next time.Time) {
	var due []membership.Action
	if !b.closed && b.sets[s.id] == s {
		due, next = s.Look(now, b.options.Leads())
	}
	for _, a := range due {
		b.work.Go(func() { b.do(s, a) })
	}
	if in, shown := s.Instance(); shown && (!s.known || differs(s.shown, in)) {
		s.shown, s.known = in, true
		b.emit(in)
	}
	close(s.changed)
	s.changed = make(chan struct{})
	if s.Gone() && b.sets[s.id] == s {
		s.cancel()
		delete(b.sets, s.id)
	}
	return next
}

// differs reports whether drivers are told a set's new state.
func differs(before, now cluster.Instance) bool {
	return before.State != now.State || before.Address != now.Address || before.Config != now.Config || before.Parked != now.Parked
}

// after takes in a result about a set, and looks at it. tell runs with the lock held.
func (b *Backend) after(s *set, tell func(now time.Time)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	tell(now)
	b.look(s, now)
}

// find returns a set, nil if the instance is none.
func (b *Backend) find(id cluster.InstanceID) (*set, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, ErrClosed
	}
	return b.sets[id], nil
}

// Nodes implements [cluster.Backend]: it returns those of the backend below, where each member
// holds its share of its own node.
func (b *Backend) Nodes(ctx context.Context) ([]cluster.Node, error) { return b.under.Nodes(ctx) }

// Instances lists the sets and the instances that are no sets, the oldest first. It hides the
// members. After the first call, Events delivers changes.
func (b *Backend) Instances(ctx context.Context) ([]cluster.Instance, error) {
	b.mu.Lock()
	b.announced = true // Before the list, so that no change is lost.
	b.mu.Unlock()
	all, err := b.under.Instances(ctx)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(in cluster.Instance) bool { return in.Set != "" })
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, ErrClosed
	}
	for _, s := range b.sets {
		if in, shown := s.Instance(); shown {
			all = append(all, in)
		}
	}
	slices.SortStableFunc(all, cluster.CompareAge)
	return all, nil
}

// Events delivers the states of sets as those of one instance, and the events of the instances
// that are no sets, in order per instance. Close closes the channel.
func (b *Backend) Events() <-chan cluster.Instance { return b.events.Out() }

// Usage returns what an instance uses; for a set, the sum of its members.
func (b *Backend) Usage(ctx context.Context, id cluster.InstanceID) (cluster.Resources, error) {
	s, err := b.find(id)
	if err != nil {
		return cluster.Resources{}, err
	}
	if s == nil {
		return b.under.Usage(ctx, id)
	}
	b.mu.Lock()
	members := s.Members()
	b.mu.Unlock()
	var sum cluster.Resources
	var failed error
	for _, in := range members {
		used, err := b.under.Usage(ctx, in.ID)
		sum, failed = sum.Add(used), errors.Join(failed, err)
	}
	if len(members) == 0 {
		failed = errors.New("no member of it exists")
	}
	if failed != nil {
		return cluster.Resources{}, fmt.Errorf("usage of %s: %w", id, failed)
	}
	return sum, nil
}

// Close releases all instances without stopping them, and closes the backend below.
func (b *Backend) Close() error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.cancel()
	err := b.under.Close()
	b.work.Wait()
	return err
}
