package client

import (
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

// The lease's times. A replica that is killed is followed within lease and twice the
// longest look, 2.2 looks each (the library's jitter): 4.8 s. One that cannot renew
// stops leading before another can begin.
const (
	lease = 3 * time.Second
	renew = 2 * time.Second
	look  = 400 * time.Millisecond
)

// ElectionOptions configure an election.
type ElectionOptions struct {
	// Config reaches the API server.
	Config *rest.Config
	// Namespace and Name are the Lease's. Identity tells this replica from the
	// others, also from itself before a restart: a pod's name and UID.
	Namespace, Name, Identity string
	// Changed, if not nil, is told in turn when this replica begins to lead and when
	// it has stopped; it must return soon.
	Changed func(leading bool)
	Logger  zerolog.Logger
}

// Election is one replica's part in the election.
type Election struct {
	options ElectionOptions
	client  coordinationv1.CoordinationV1Interface
	elector atomic.Pointer[leaderelection.LeaderElector]
	// mu orders the changes.
	mu      sync.Mutex
	leading atomic.Bool
	// renewed is when the lease was last ours, as a time.Duration since begun.
	renewed atomic.Int64
	begun   time.Time
}

// NewElection returns an election in which this replica takes part while Run runs.
func NewElection(o ElectionOptions) (*Election, error) {
	if o.Namespace == "" || o.Name == "" || o.Identity == "" {
		return nil, errors.New("an election needs the lease's namespace and name, and an identity of this replica")
	}
	config := rest.CopyConfig(o.Config)
	// A try that hangs must leave time for another.
	config.Timeout = renew / 2
	config.QPS = -1
	client, err := coordinationv1.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("a client for leases: %w", err)
	}
	return &Election{options: o, client: client, begun: time.Now()}, nil
}

// Leading reports whether this replica leads now. It is false from the moment on at
// which another may have followed, also where this process was stopped meanwhile.
func (e *Election) Leading() bool {
	return e.leading.Load() && time.Since(e.begun)-time.Duration(e.renewed.Load()) < lease
}

// Leader is the identity of who leads, as last seen; "" before anybody was.
func (e *Election) Leader() string {
	if elector := e.elector.Load(); elector != nil {
		return elector.GetLeader()
	}
	return ""
}

// Run takes part until ctx ends, then hands on the lease.
func (e *Election) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: &lock{election: e, LeaseLock: &resourcelock.LeaseLock{
				LeaseMeta:  metav1.ObjectMeta{Namespace: e.options.Namespace, Name: e.options.Name},
				Client:     e.client,
				LockConfig: resourcelock.ResourceLockConfig{Identity: e.options.Identity},
			}},
			LeaseDuration: lease, RenewDeadline: renew, RetryPeriod: look,
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
			return fmt.Errorf("the election of a leader: %w", err)
		}
		e.elector.Store(elector)
		elector.Run(ctx)
	}
	return nil
}

// begin is called in a goroutine of its own, so also after it is over.
func (e *Election) begin(ctx context.Context) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if ctx.Err() == nil && !e.leading.Swap(true) {
		e.tell(true)
	}
}

func (e *Election) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.leading.Swap(false) {
		e.tell(false)
	}
}

func (e *Election) tell(leading bool) {
	if e.options.Changed != nil {
		e.options.Changed(leading)
	}
}

// lock is the Lease, and remembers since when it has been ours.
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

// kept notes a lease that was got with what was asked at a time.
func (l *lock) kept(asked time.Duration, err error) error {
	if err == nil {
		l.election.renewed.Store(int64(asked))
	}
	return err
}
