package keeper

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// Instance is a controller's own type of instance: it embeds a Kept of itself. The
// methods are called with the controller's lock held.
type Instance interface {
	comparable
	kept() *Kept
	// Holds is what it takes of its node.
	Holds() cluster.Resources
	// Current reports whether it is what its function would start now.
	Current() bool
	// Up lets it take requests: it has loaded and is to stay.
	Up()
	// Seen is called after a new state was taken in; before is the one until then.
	Seen(before cluster.State, now cluster.Instance)
}

// Kept is the life of one instance.
type Kept struct {
	cluster.Instance
	// Usage is what it used at the latest reading.
	Usage cluster.Resources
	// Retiring: it takes nothing new. Fault is why it is of no use any more, nil if
	// it is just not wanted.
	Retiring bool
	Fault    error
	// Stopping: the backend is asked to stop it, or will be.
	Stopping bool
	// DrainGrace is how long it may take to answer what it has once it is retired.
	DrainGrace time.Duration

	service *Service
	// drop takes it out of its fleet.
	drop func()
	// begun is closed once the backend has been asked to start it, or will not be;
	// abandon makes sure of the latter, if it is not too late. ready is closed once it
	// has loaded, gone when nothing of it is left.
	begun, ready, gone chan struct{}
	abandon            context.CancelFunc
}

func (k *Kept) kept() *Kept { return k }

// Seen does nothing; an instance that has something to do with a new state has a
// method of its own.
func (k *Kept) Seen(cluster.State, cluster.Instance) {}

// There reports whether the instance has loaded and is to stay.
func (k *Kept) There() bool { return k.State == cluster.Ready && !k.Retiring }

// loaded notes that the instance is ready, if that is new.
func (k *Kept) loaded() {
	select {
	case <-k.ready:
	default:
		close(k.ready)
	}
}

// AwaitReady returns when the instance has loaded, or false if it never will. It is
// called without the lock.
func (k *Kept) AwaitReady(ctx context.Context) bool {
	select {
	case <-k.ready:
		return true
	case <-k.gone:
	case <-ctx.Done():
	}
	return false
}

// why is why an instance exited, as far as anybody knows.
func (k *Kept) why() string {
	if k.Reason == "" && k.Fault != nil {
		return k.Fault.Error()
	}
	return k.Reason
}

// NewID is an ID for a new instance of a function.
func NewID(function string) cluster.InstanceID {
	name, _, _ := strings.Cut(function, ".")
	if len(name) > 40 { // An ID is a DNS label.
		name = name[:40]
	}
	var b [6]byte
	rand.Read(b[:])
	return cluster.InstanceID(name + "-" + hex.EncodeToString(b[:]))
}
