package keeper

import (
	"context"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// orphanGrace is how long an instance may run whose function is not known, where there
// are several replicas: the one or the other may have been seen first.
const orphanGrace = time.Minute

// Claim offers a function its unclaimed instances: adopt adds one, or returns why the
// function does not want it.
func (k *Keeper[I]) Claim(function string, adopt func(cluster.Instance) (in I, unwanted string)) {
	for id, known := range k.unclaimed {
		if known.Function != function || known.leaving {
			continue
		}
		in, unwanted := adopt(known.Instance)
		if unwanted != "" {
			k.leave(id, known, unwanted)
			continue
		}
		kept := in.kept()
		close(kept.begun)
		delete(k.unclaimed, id)
		event := k.options.Logger.Info()
		if !k.options.Replicas.Alone() {
			event = k.options.Logger.Debug() // All that others start come here.
		}
		event.Str("function", function).Str("instance", string(id)).Msg("took over a running instance")
		if kept.There() {
			in.Up()
		}
	}
}

// StopUnclaimed stops the instances of an earlier provider whose functions are gone, or,
// where there are several replicas, whose functions nobody has heard of for a while. known
// reports whether a function is deployed.
func (k *Keeper[I]) StopUnclaimed(now time.Time, known func(function string) bool) {
	for id, in := range k.unclaimed {
		if !known(in.Function) && (k.options.Replicas.Alone() || now.Sub(in.since) >= orphanGrace) {
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

// leave stops an unclaimed instance. Until it is gone it holds its room.
func (k *Keeper[I]) leave(id cluster.InstanceID, in *unclaimed, why string) {
	if in.leaving || !k.options.Replicas.Leads() {
		return
	}
	in.leaving = true
	k.options.Logger.Info().Str("function", in.Function).Str("instance", string(id)).Str("why", why).Msg("stopping an instance of an earlier provider")
	k.Begin(func() { k.stop(id, k.options.StopGrace) })
}

// observeUnclaimed takes in the new state of an instance that nobody has claimed.
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

// Alone is a provider without other replicas.
type Alone struct{}

// Leads implements [Replicas]: it starts and stops instances.
func (Alone) Leads() bool { return true }

// Alone implements [Replicas].
func (Alone) Alone() bool { return true }

// Drain implements [Replicas]: nobody else uses an instance.
func (Alone) Drain(context.Context, cluster.InstanceID) {}

// Lost implements [Replicas]; it is not called.
func (Alone) Lost(cluster.InstanceID, error) {}

// Gone implements [Replicas].
func (Alone) Gone(cluster.InstanceID) {}
