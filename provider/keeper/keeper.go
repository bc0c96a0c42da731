// Package keeper is what all controllers have in common: the life of instances. A
// Keeper starts, retires, loses, adopts and stops them, takes in what the backend says
// of them, and reads what they use; begin there. A Fleet is those of one function, with
// their failures in a row. A Loop looks at the load every tick, and sooner after a Kick;
// Tasks are what goes on in the background. Controllers differ in what they decide:
// provider/control asks the scaling engine for models, provider/processes and
// provider/deployments the number of replicas for ordinary functions.
package keeper

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster"
)

const (
	// ReadingPeriod is the time between two readings of what instances use.
	ReadingPeriod = 5 * time.Second
	// lostGrace is how long an instance that broke off an exchange may take to leave.
	lostGrace = 500 * time.Millisecond
	// firstRetry and longestRetry are the pauses before a backend that failed to stop an
	// instance is asked again.
	firstRetry   = time.Second
	longestRetry = 5 * time.Minute
)

// errFollowing is why an instance is not started.
var errFollowing = errors.New("another replica of the provider leads")

// Replicas are the provider's other replicas, as far as they concern an instance's life.
type Replicas interface {
	// Leads reports whether this replica starts and stops instances.
	Leads() bool
	// Alone reports whether there is no other replica, now or later: instances then
	// end with the provider, and none comes from elsewhere.
	Alone() bool
	// Drain has the others give an instance nothing new, and returns when none of
	// them has anything on it, or with ctx.
	Drain(ctx context.Context, id cluster.InstanceID)
	// Lost keeps for the leader that an instance broke off an exchange; Gone that it
	// is no more.
	Lost(id cluster.InstanceID, cause error)
	Gone(id cluster.InstanceID)
}

// Options are what a keeper works with.
type Options struct {
	Backend cluster.Backend
	Logger  zerolog.Logger
	// Lock is the controller's.
	Lock sync.Locker
	// Wake has the controller look at the load now.
	Wake func()
	// StopGrace is how long a retired instance may take to leave.
	StopGrace time.Duration
	Replicas  Replicas
	// Discover is told of a function that has an instance which another replica has
	// started, and which nobody has claimed.
	Discover func(function string)
}

// Keeper keeps one controller's instances. Unless its comment says otherwise a method is
// called with the controller's lock held.
type Keeper[I Instance] struct {
	*Tasks
	options   Options
	instances map[cluster.InstanceID]I
	// unclaimed are instances of an earlier provider, or of another replica, that no
	// function has claimed yet, or that nobody wants.
	unclaimed map[cluster.InstanceID]*unclaimed
	// reading: a reading of what instances use goes on.
	reading bool
	// blind is why the nodes could not be listed, "" if they could.
	blind string
}

// unclaimed is an instance without a function.
type unclaimed struct {
	cluster.Instance
	// since is when it was first seen.
	since time.Time
	// leaving: nobody wants it, and it is being stopped.
	leaving bool
}

// New returns a keeper that has found the instances of an earlier provider.
func New[I Instance](ctx context.Context, o Options) (*Keeper[I], error) {
	found, err := o.Backend.Instances(ctx)
	if err != nil {
		return nil, fmt.Errorf("list instances: %w", err)
	}
	k := &Keeper[I]{Tasks: NewTasks(), options: o, instances: map[cluster.InstanceID]I{}, unclaimed: map[cluster.InstanceID]*unclaimed{}}
	for _, in := range found {
		k.unclaimed[in.ID] = &unclaimed{Instance: in, since: time.Now()}
	}
	return k, nil
}

// Instance finds one by its ID.
func (k *Keeper[I]) Instance(id cluster.InstanceID) (in I, ok bool) {
	in, ok = k.instances[id]
	return in, ok
}

// Instances are all that exist. The map must not be changed.
func (k *Keeper[I]) Instances() map[cluster.InstanceID]I { return k.instances }

// Add keeps an instance under its function.
func (k *Keeper[I]) Add(in I, of *Fleet[I], seen cluster.Instance) {
	kept := in.kept()
	kept.Instance, kept.service, kept.abandon = seen, &of.Service, func() {}
	kept.drop = func() {
		delete(of.Instances, seen.ID)
		of.order = nil
	}
	kept.begun, kept.ready, kept.gone = make(chan struct{}), make(chan struct{}), make(chan struct{})
	if seen.State == cluster.Ready {
		kept.loaded()
	}
	of.Instances[seen.ID], of.order = in, nil
	k.instances[seen.ID] = in
}

// Start has the backend start an instance that was added, once those whose room it
// needs are gone.
func (k *Keeper[I]) Start(in I, after []cluster.InstanceID) {
	kept := in.kept()
	spec := kept.InstanceSpec
	k.options.Logger.Debug().Str("function", spec.Function).Str("instance", string(spec.ID)).Stringer("config", spec.Config).Msg("starting an instance")
	k.After(in, after, func(ctx context.Context, err error) {
		if err == nil {
			err = k.mayStart(kept)
		}
		if err == nil {
			_, err = k.options.Backend.Start(ctx, spec)
		}
		close(kept.begun)
		if err != nil {
			k.Observe(cluster.Instance{InstanceSpec: spec, State: cluster.Exited, Reason: err.Error()})
		}
	})
}

// After runs f in the background, without the lock, once some instances are gone, or
// with an error when the instance is retired before that.
func (k *Keeper[I]) After(in I, gone []cluster.InstanceID, f func(ctx context.Context, err error)) {
	var leaving []<-chan struct{}
	for _, id := range gone {
		if other, ok := k.instances[id]; ok {
			leaving = append(leaving, other.kept().gone)
		}
	}
	ctx, abandon := context.WithCancel(k.Context())
	in.kept().abandon = abandon
	k.Begin(func() {
		defer abandon()
		for _, g := range leaving {
			select {
			case <-g:
			case <-ctx.Done():
			}
		}
		f(ctx, ctx.Err())
	})
}

// mayStart is why an instance is not started now that there is room for it: another
// replica has begun to lead. It then counts as retired. The lock is not held.
func (k *Keeper[I]) mayStart(in *Kept) error {
	if k.options.Replicas.Leads() {
		return nil
	}
	k.options.Lock.Lock()
	defer k.options.Lock.Unlock()
	in.Retiring, in.Stopping = true, true
	return errFollowing
}

// Retire stops an instance once what it has in flight is answered.
func (k *Keeper[I]) Retire(in I, why string) {
	kept := in.kept()
	if kept.Retiring && kept.Stopping {
		return
	}
	kept.Retiring = true
	if !k.options.Replicas.Leads() {
		return // The leader stops it.
	}
	kept.Stopping = true
	kept.abandon()
	k.options.Logger.Info().Str("function", kept.Function).Str("instance", string(kept.ID)).Str("why", why).Msg("retiring")
	grace := kept.DrainGrace
	if grace == 0 {
		grace = k.options.StopGrace
	}
	k.Begin(func() {
		<-kept.begun
		ctx, cancel := context.WithTimeout(k.Stops(), grace)
		k.drain(ctx, kept) // At the end of the grace it is stopped all the same.
		cancel()
		k.stop(kept.ID, k.options.StopGrace)
	})
}

// drain has no replica use an instance any more, and returns when none does, or when
// ctx ends.
func (k *Keeper[I]) drain(ctx context.Context, in *Kept) {
	var others sync.WaitGroup
	others.Go(func() { k.options.Replicas.Drain(ctx, in.ID) })
	_ = in.service.Dispatcher.Drain(ctx, in.ID) // It is stopped all the same.
	others.Wait()
}

// Left has the dispatcher give an instance nothing new that somebody else stops.
func (k *Keeper[I]) Left(in I) {
	kept := in.kept()
	if kept.Retiring {
		return
	}
	kept.Retiring, kept.Stopping = true, true
	k.Begin(func() { _ = kept.service.Dispatcher.Drain(k.Stops(), kept.ID) })
}

// Lost is what a dispatcher calls for an instance that broke off an exchange: whatever
// is left of it is of no use. The lock is not held.
func (k *Keeper[I]) Lost(id cluster.InstanceID, cause error) {
	k.options.Lock.Lock()
	defer k.options.Lock.Unlock()
	in, ok := k.instances[id]
	if !ok || in.kept().Retiring {
		return
	}
	in.kept().Retiring, in.kept().Fault = true, cause
	if !k.options.Replicas.Leads() {
		k.options.Replicas.Lost(id, cause)
		return
	}
	k.discard(in.kept())
}

// LostElsewhere is Lost for one that another replica has lost, at the leader.
func (k *Keeper[I]) LostElsewhere(id cluster.InstanceID, why string) {
	in, ok := k.instances[id]
	if !ok || in.kept().Stopping {
		return
	}
	in.kept().Retiring, in.kept().Fault = true, errors.New("another replica lost it: "+why)
	k.discard(in.kept())
}

// discard stops an instance that is of no use any more.
func (k *Keeper[I]) discard(in *Kept) {
	in.Stopping = true
	k.options.Logger.Warn().Str("function", in.Function).Str("instance", string(in.ID)).AnErr("cause", in.Fault).Msg("lost an instance")
	k.Begin(func() { k.stop(in.ID, lostGrace) })
	k.options.Wake()
}

// stop asks the backend to stop an instance until it has. The lock is not held.
func (k *Keeper[I]) stop(id cluster.InstanceID, grace time.Duration) {
	for n := 1; ; n++ {
		ctx, cancel := context.WithTimeout(k.Stops(), grace)
		err := k.options.Backend.Stop(ctx, id)
		cancel()
		if err == nil || k.Ended() {
			return
		}
		k.options.Logger.Error().Str("instance", string(id)).Err(err).Msg("stop instance; it is tried again")
		select {
		case <-k.Context().Done():
		case <-time.After(Backoff(n, firstRetry, longestRetry)):
		}
	}
}

// Observe takes in an instance's new state. The lock is not held.
func (k *Keeper[I]) Observe(seen cluster.Instance) {
	k.options.Lock.Lock()
	defer k.options.Lock.Unlock()
	in, ok := k.instances[seen.ID]
	if !ok {
		k.observeUnclaimed(seen)
		return
	}
	kept := in.kept()
	before := kept.State
	kept.State, kept.Network, kept.Address, kept.Reason = seen.State, seen.Network, seen.Address, seen.Reason
	in.Seen(before, seen)
	switch {
	case seen.State == cluster.Exited:
		k.gone(in)
	case seen.State == cluster.Stopping && !k.options.Replicas.Alone():
		k.Left(in)
	case seen.State == cluster.Ready && before != cluster.Ready:
		kept.ReadyAt = seen.ReadyAt
		kept.loaded()
		kept.service.Failures.Why = ""
		if k.options.Replicas.Leads() {
			kept.service.Metrics.ObserveCold(kept.ReadyAt.Sub(kept.StartedAt))
		}
		if kept.There() {
			in.Up()
		}
	}
	k.options.Wake()
}

// gone forgets an instance that exited.
func (k *Keeper[I]) gone(in I) {
	kept := in.kept()
	kept.drop()
	delete(k.instances, kept.ID)
	k.options.Replicas.Gone(kept.ID)
	close(kept.gone)
	served := kept.service.Dispatcher.Forget(kept.ID)
	if kept.Retiring && kept.Fault == nil || k.Ended() {
		return
	}
	k.options.Logger.Warn().Str("function", kept.Function).Str("instance", string(kept.ID)).Str("reason", kept.Reason).Msg("an instance exited")
	if in.Current() {
		kept.service.Failures.Died(time.Now(), kept.ReadyAt, served, kept.why())
	}
}

// TakeOver makes this replica, which begins to lead, responsible for all instances:
// found are those that the backend has now, and what was to leave is stopped. The lock
// is not held.
func (k *Keeper[I]) TakeOver(found []cluster.Instance) {
	for _, seen := range found {
		if seen.State != cluster.Exited {
			k.Observe(seen)
		}
	}
	k.options.Lock.Lock()
	defer k.options.Lock.Unlock()
	for _, in := range k.instances {
		switch kept := in.kept(); {
		case !kept.Retiring || kept.Stopping:
		case kept.Fault != nil:
			k.discard(kept)
		default:
			k.Retire(in, "it was to leave")
		}
	}
}

// Free sets what is free on the nodes when everything is counted that was begun, also
// what the backend has not heard of yet.
func (k *Keeper[I]) Free(nodes []cluster.Node) {
	at := make(map[string]*cluster.Node, len(nodes))
	for i := range nodes {
		nodes[i].Free = nodes[i].Total.Sub(nodes[i].Others)
		at[nodes[i].Name] = &nodes[i]
	}
	hold := func(node string, held cluster.Resources) {
		if n, ok := at[node]; ok {
			n.Free = n.Free.Sub(held)
		}
	}
	for _, in := range k.instances {
		hold(in.kept().Node, in.Holds())
	}
	for _, in := range k.unclaimed {
		hold(in.Node, in.Holds())
	}
}

// Blind reports whether the nodes could not be listed, and logs it once. The lock is
// not held, and only one goroutine asks.
func (k *Keeper[I]) Blind(err error) bool {
	why := ""
	if err != nil {
		why = err.Error()
	}
	if why != k.blind && err != nil {
		k.options.Logger.Error().Err(err).Msg("list nodes; nothing is started or stopped until it works")
	}
	k.blind = why
	return err != nil
}

// Sample reads in the background what the instances use, unless the last reading still
// goes on. The lock is not held.
func (k *Keeper[I]) Sample() {
	k.options.Lock.Lock()
	defer k.options.Lock.Unlock()
	if k.reading || len(k.instances) == 0 || k.Ended() {
		return
	}
	k.reading = true
	ids := slices.Collect(maps.Keys(k.instances))
	k.Begin(func() {
		used := make(map[cluster.InstanceID]cluster.Resources, len(ids))
		for _, id := range ids {
			// An error means that it is gone, or leaving: it uses nothing.
			used[id], _ = k.options.Backend.Usage(k.Context(), id)
		}
		k.options.Lock.Lock()
		defer k.options.Lock.Unlock()
		k.reading = false
		k.used(used)
	})
}

// used takes in a reading.
func (k *Keeper[I]) used(now map[cluster.InstanceID]cluster.Resources) {
	sums := map[*Service]cluster.Resources{}
	for id, in := range k.instances {
		kept := in.kept()
		kept.Usage = now[id]
		sums[kept.service] = sums[kept.service].Add(kept.Usage)
	}
	if !k.options.Replicas.Leads() {
		return
	}
	for s, sum := range sums {
		s.Metrics.SetUsed(sum)
	}
}

// Close stops every instance, unless others go on with them, and waits until nothing of
// them is left; those that are still there when ctx ends are killed. End was called, and
// the lock is not held.
func (k *Keeper[I]) Close(ctx context.Context) error {
	defer context.AfterFunc(ctx, k.kill)()
	k.options.Lock.Lock()
	var stops []func() error
	if k.options.Replicas.Alone() {
		stops = k.stops(ctx)
	}
	k.options.Lock.Unlock()
	failures := make(chan error, len(stops))
	for _, stop := range stops {
		go func() { failures <- stop() }()
	}
	var err error
	for range stops {
		err = errors.Join(err, <-failures)
	}
	k.Wait(ctx)
	return err
}

// stops is what stops every instance.
func (k *Keeper[I]) stops(ctx context.Context) (stops []func() error) {
	for id, in := range k.instances {
		begun := in.kept().begun
		stops = append(stops, func() error {
			select {
			case <-begun:
			case <-ctx.Done():
			}
			return k.options.Backend.Stop(ctx, id)
		})
	}
	for id := range k.unclaimed {
		stops = append(stops, func() error { return k.options.Backend.Stop(ctx, id) })
	}
	return stops
}
