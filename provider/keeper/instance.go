package keeper

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// Instance is a controller's own type of instance, which embeds [Kept]. The keeper calls its
// methods with the controller's lock held.
type Instance interface {
	comparable
	kept() *Kept
	// Holds returns the resources that it takes from its node, or from its nodes together.
	Holds() cluster.Resources
	// Current reports whether its function would now start the same instance.
	Current() bool
	// Up makes the dispatcher send it requests. It is called when the instance is ready
	// and not being retired.
	Up()
	// Seen is called after a new state was applied; before is the earlier one.
	Seen(before cluster.State, now cluster.Instance)
}

// Kept is the keeper's part of an instance: its state and what the keeper does with it.
type Kept struct {
	cluster.Instance
	// Loading is the time from when the backend started it until it was ready, 0 if unknown.
	// The wait for room before that does not count.
	Loading time.Duration
	// Usage is what it used by the latest reading.
	Usage cluster.Resources
	// Retiring: it gets no new requests. Fault is why it was lost, nil if it is only not
	// needed any more.
	Retiring bool
	Fault    error
	// Suspect: it does not answer, or fails more than the others, and gets no new requests until
	// it is well again.
	Suspect bool
	// Stopping: the backend has been asked to stop it, or will be.
	Stopping bool
	// DrainGrace is how long it may take to answer its requests once it is retired. If it
	// is 0, the keeper's StopGrace applies.
	DrainGrace time.Duration

	service *Service
	// drop removes it from its fleet.
	drop func()
	// begun is closed once the backend has been asked to start it, or never will be.
	// abandon cancels a start that has not begun. ready is closed when the instance is
	// ready, gone when it has exited, and stuck when the backend could not stop it.
	begun, ready, gone, stuck chan struct{}
	abandon                   context.CancelFunc
}

func (k *Kept) kept() *Kept { return k }

// Seen implements [Instance] and does nothing. An instance type that must react to a new
// state overrides it.
func (k *Kept) Seen(cluster.State, cluster.Instance) {}

// There reports whether the instance is ready, answers and is not being retired.
func (k *Kept) There() bool { return k.State == cluster.Ready && !k.Retiring && !k.Suspect }

// loaded marks the instance as ready. seen is what the backend says of it.
func (k *Kept) loaded(seen cluster.Instance) {
	if k.ReadyAt = seen.ReadyAt; !seen.StartedAt.IsZero() {
		k.Loading = max(0, seen.ReadyAt.Sub(seen.StartedAt))
	}
	select {
	case <-k.ready:
	default:
		close(k.ready)
	}
}

// AwaitReady returns true when the instance is ready, false if it exits before or ctx ends.
// Call it without the lock.
func (k *Kept) AwaitReady(ctx context.Context) bool {
	select {
	case <-k.ready:
		return true
	case <-k.gone:
	case <-ctx.Done():
	}
	return false
}

// Why returns why the instance exited, "" if that is unknown.
func (k *Kept) Why() string {
	if k.Reason == "" && k.Fault != nil {
		return k.Fault.Error()
	}
	return k.Reason
}

// NewID returns a random ID for a new instance of a function.
func NewID(function string) cluster.InstanceID {
	name, _, _ := strings.Cut(function, ".")
	if len(name) > 40 { // An ID is a DNS label.
		name = name[:40]
	}
	var b [6]byte
	rand.Read(b[:])
	return cluster.InstanceID(name + "-" + hex.EncodeToString(b[:]))
}
