package keeper

import (
	"context"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// orphanGrace is how long an instance of an unknown function may run if there are several
// replicas: this one may see an instance before it learns of the function.
const orphanGrace = time.Minute

// Later is what a function says of an instance that it may want later.
const Later = "later"

// Claim offers a function its unclaimed instances. adopt adds one, or returns why the
// function does not want it; then Claim stops it, unless it may be wanted [Later].
func (k *Keeper[I]) Claim(function string, adopt func(cluster.Instance) (in I, unwanted string)) {
	for id, known := range k.unclaimed {
		if known.Function != function || known.leaving {
			continue
		}
		in, unwanted := adopt(known.Instance)
		if unwanted == Later {
			continue
		}
		if unwanted != "" {
			k.leave(id, known, unwanted)
			continue
		}
		kept := in.kept()
		close(kept.begun)
		delete(k.unclaimed, id)
		event := k.options.Logger.Info()
		if !k.options.Replicas.Alone() {
			event = k.options.Logger.Debug() // This happens to every instance that others start.
		}
		event.Str("function", function).Str("instance", string(id)).Msg("took over a running instance")
		if kept.There() {
			in.Up()
		}
	}
}

// Restoring tells which functions are still to be deployed after a restart. The lock is not held.
func (k *Keeper[I]) Restoring(missing func(function string) bool) {
	k.options.Lock.Lock()
	defer k.options.Lock.Unlock()
	k.missing = missing
}

// StopUnclaimed stops unclaimed instances of functions that neither are deployed nor will be
// after a restart. With several replicas it waits for orphanGrace first. known reports whether
// a function is deployed.
func (k *Keeper[I]) StopUnclaimed(now time.Time, known func(function string) bool) {
	for id, in := range k.unclaimed {
		if !known(in.Function) && (k.missing == nil || !k.missing(in.Function)) && (k.options.Replicas.Alone() || now.Sub(in.since) >= orphanGrace) {
			k.leave(id, in, "its function is gone")
		}
	}
}

// Dismiss stops a function's unclaimed instances.
func (k *Keeper[I]) Dismiss(function, why string) {
	for id, in := range k.unclaimed {
		if in.Function == function {
			k.leave(id, in, why)
		}
	}
}

// leave stops an unclaimed instance. It holds its resources until it is gone.
func (k *Keeper[I]) leave(id cluster.InstanceID, in *unclaimed, why string) {
	if in.leaving || !k.options.Replicas.Leads() {
		return
	}
	in.leaving = true
	k.options.Logger.Info().Str("function", in.Function).Str("instance", string(id)).Str("why", why).Msg("stopping an instance of an earlier provider")
	k.Begin(func() { k.stop(id, k.options.StopGrace, nil) })
}

// observeUnclaimed applies the new state of an instance that no function has claimed.
func (k *Keeper[I]) observeUnclaimed(seen cluster.Instance) {
	known, ok := k.unclaimed[seen.ID]
	switch {
	case !ok && k.options.Replicas.Alone():
	case !ok && (seen.State == cluster.Exited || seen.State == cluster.Stopping):
	case !ok:
		k.unclaimed[seen.ID] = &unclaimed{Instance: seen, since: time.Now()}
		k.options.Discover(seen.Function)
		k.options.Wake()
	case seen.State == cluster.Exited:
		delete(k.unclaimed, seen.ID)
		k.options.Wake()
	default:
		known.Instance = seen
	}
}

// Alone implements [Replicas] for a provider without other replicas.
type Alone struct{}

// Leads implements [Replicas].
func (Alone) Leads() bool { return true }

// Alone implements [Replicas].
func (Alone) Alone() bool { return true }

// Drain implements [Replicas]: nobody else uses an instance.
func (Alone) Drain(context.Context, cluster.InstanceID) {}

// Lost implements [Replicas]. A keeper that leads does not call it.
func (Alone) Lost(cluster.InstanceID, error) {}

// Gone implements [Replicas].
func (Alone) Gone(cluster.InstanceID) {}
