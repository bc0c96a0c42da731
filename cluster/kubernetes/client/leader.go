package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// DefaultLease is the duration of a lease. Its leader writes it [Renewals] times a minute, and the
// other replicas read it as often: what client-go's own components do to every API server. After
// a leader is killed, another replica leads within the duration plus two retry periods, each up
// to 2.2 times as long because of the library's jitter: 15 s + 2 · 2.2 · 2 s = 23.8 s. One that
// ends by itself is followed within a retry period. Requests are answered meanwhile.
const DefaultLease = 15 * time.Second

// times returns how long a leader tries to renew a lease, and the time between two tries, in
// client-go's proportions. A leader that cannot renew stops leading before another can begin.
func times(lease time.Duration) (deadline, retry time.Duration) {
	return lease * 2 / 3, lease * 2 / 15
}

// Renewals is how often a minute a leader writes its lease.
func Renewals(lease time.Duration) float64 {
	_, retry := times(lease)
	return time.Minute.Seconds() / retry.Seconds()
}

// ElectionOptions configure an election.
type ElectionOptions struct {
	// Config reaches the API server.
	Config *rest.Config
	// Namespace and Name are the Lease's. Identity distinguishes this replica from
	// the others and from itself before a restart: use the pod's name and UID.
	Namespace, Name, Identity string
	// Lease is how long the lease holds; [DefaultLease] if 0.
	Lease time.Duration
	// Changed, if not nil, is called when this replica begins to lead and when it has
	// stopped, one call at a time. It must return soon.
	Changed func(leading bool)
	Logger  zerolog.Logger
}

// Election is one replica's part in the election.
type Election struct {
	options ElectionOptions
	client  coordinationv1.CoordinationV1Interface
	elector atomic.Pointer[leaderelection.LeaderElector]
	// mu orders the calls of Changed.
	mu      sync.Mutex
	leading atomic.Bool
	// renewed is the start of the last successful renewal, as a time.Duration since
	// begun.
	renewed atomic.Int64
	begun   time.Time
}

// NewElection returns an election in which this replica takes part while Run runs.
func NewElection(o ElectionOptions) (*Election, error) {
	if o.Namespace == "" || o.Name == "" || o.Identity == "" {
		return nil, errors.New("ElectionOptions: set Namespace, Name and Identity")
	}
	o.Lease = cmp.Or(o.Lease, DefaultLease)
	config := rest.CopyConfig(o.Config)
	// A try that hangs must leave time for another.
	deadline, _ := times(o.Lease)
	config.Timeout = deadline / 2
	config.QPS = -1
	client, err := coordinationv1.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create a client for leases: %w", err)
	}
	return &Election{options: o, client: client, begun: time.Now()}, nil
}

// Leading reports whether this replica leads now. It returns false as soon as another
// replica may lead, even if this process was suspended in the meantime.
func (e *Election) Leading() bool {
	return e.leading.Load() && time.Since(e.begun)-time.Duration(e.renewed.Load()) < e.options.Lease
}

// Leader returns the identity of the last known leader; "" before there was one.
func (e *Election) Leader() string {
	if elector := e.elector.Load(); elector != nil {
		return elector.GetLeader()
	}
	return ""
}

// Run takes part in the election until ctx ends, then releases the lease.
func (e *Election) Run(ctx context.Context) error {
	deadline, retry := times(e.options.Lease)
	for ctx.Err() == nil {
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: &lock{election: e, LeaseLock: &resourcelock.LeaseLock{
				LeaseMeta:  metav1.ObjectMeta{Namespace: e.options.Namespace, Name: e.options.Name},
				Client:     e.client,
				LockConfig: resourcelock.ResourceLockConfig{Identity: e.options.Identity},
			}},
			LeaseDuration: e.options.Lease, RenewDeadline: deadline, RetryPeriod: retry,
			ReleaseOnCancel: true, Name: e.options.Name,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: e.begin,
				OnStoppedLeading: e.end,
				OnNewLeader: func(identity string) {
					e.options.Logger.Info().Str("leader", identity).Bool("this", identity == e.options.Identity).Msg("a replica leads")
				},
			},
		})
		if err != nil {
			return fmt.Errorf("elect a leader: %w", err)
		}
		e.elector.Store(elector)
		elector.Run(ctx)
	}
	return nil
}

// begin takes in that this replica leads. The library calls it in a goroutine of its
// own, so it may run after the leadership has ended.
func (e *Election) begin(ctx context.Context) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if ctx.Err() == nil && !e.leading.Swap(true) {
		e.report(true)
	}
}

func (e *Election) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.leading.Swap(false) {
		e.report(false)
	}
}

func (e *Election) report(leading bool) {
	if e.options.Changed != nil {
		e.options.Changed(leading)
	}
}

// lock is the Lease. It records when this replica last acquired or renewed it.
type lock struct {
	*resourcelock.LeaseLock
	election *Election
}

// Create implements [resourcelock.Interface].
func (l *lock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	asked := time.Since(l.election.begun)
	return l.kept(asked, l.LeaseLock.Create(ctx, r))
}

// Update implements [resourcelock.Interface].
func (l *lock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	asked := time.Since(l.election.begun)
	return l.kept(asked, l.LeaseLock.Update(ctx, r))
}

// kept records that a request begun at asked acquired or renewed the lease, if err is nil.
func (l *lock) kept(asked time.Duration, err error) error {
	if err == nil {
		l.election.renewed.Store(int64(asked))
	}
	return err
}
