// Package keeper manages the life of instances for all controllers: it starts, adopts,
// retires and stops them, follows their state on the backend and reads their usage. It does
// not decide how many there should be: provider/control asks the scaling engine for models,
// provider/processes and provider/deployments ask scaling/replica for ordinary functions.
// A controller embeds a Base, which answers the provider's questions about its functions. Begin with
// Keeper. A Fleet holds one function's instances, a Loop looks at the load every
// tick and sooner after a Kick, Tasks run in the background.
package keeper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/backoff"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/health"
	"github.com/faas-infer/faas-infer/provider/decisions"
	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/provider/web"
)

const (
	// ReadingPeriod is the time between two readings of the instances' usage.
	ReadingPeriod = 5 * time.Second
	// lostGrace is how long an instance that broke off an exchange may take to exit.
	lostGrace = 500 * time.Millisecond
	// firstRetry and longestRetry bound the pauses between attempts to stop an instance.
	firstRetry   = time.Second
	longestRetry = 5 * time.Minute
)

// errFollowing is why a replica that no longer leads does not start an instance.
var errFollowing = errors.New("another replica of the provider leads")

// Replicas tells a keeper about the provider's other replicas, and them about instances.
type Replicas interface {
	// Leads reports whether this replica starts and stops instances.
	Leads() bool
	// Alone reports whether the provider never has other replicas: then instances end
	// with it, and nobody else starts any.
	Alone() bool
	// Drain makes the others send an instance nothing new. It returns when none of
	// them has a request on it, or when ctx ends.
	Drain(ctx context.Context, id cluster.InstanceID)
	// Lost reports to the leader that an instance broke off an exchange. Gone says that
	// an instance has exited.
	Lost(id cluster.InstanceID, cause error)
	Gone(id cluster.InstanceID)
}

// Options configure a keeper.
type Options struct {
	Backend cluster.Backend
	Logger  zerolog.Logger
	// Decisions gets the instances that exit, and those that answer no more; nil for nothing.
	Decisions *decisions.Log
	// Lock is the controller's lock.
	Lock sync.Locker
	// Wake makes the controller look at the load now.
	Wake func()
	// StopGrace is how long a retired instance may take to exit.
	StopGrace time.Duration
	Replicas  Replicas
	// Discover is called with a function's name when another replica has started an
	// instance of it that no function here has claimed.
	Discover func(function string)
}

// Keeper manages one controller's instances. Call its methods with the controller's lock
// held, unless their comments say otherwise.
type Keeper[I Instance] struct {
	*Tasks
	options   Options
	instances map[cluster.InstanceID]I
	// unclaimed are instances of an earlier provider or another replica that no function
	// has claimed.
	unclaimed map[cluster.InstanceID]*unclaimed
	// missing reports whether a function is still to be deployed after a restart, so that its
	// instances wait for it. nil: none is.
	missing func(function string) bool
	// reading: a reading of the instances' usage is in progress.
	reading bool
	// blind is why the backend could not list the nodes, "" if it could.
	blind string
}

// unclaimed is an instance without a function.
type unclaimed struct {
	cluster.Instance
	// since is when it was first seen.
	since time.Time
	// leaving: no function wants it, and the keeper is stopping it.
	leaving bool
}

// New returns a keeper that knows the instances of an earlier provider.
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

// Instance finds an instance by its ID.
func (k *Keeper[I]) Instance(id cluster.InstanceID) (in I, ok bool) {
	in, ok = k.instances[id]
	return in, ok
}

// Instances returns all instances that functions have. The caller must not change the map.
func (k *Keeper[I]) Instances() map[cluster.InstanceID]I { return k.instances }

// Add adds an instance to its function.
func (k *Keeper[I]) Add(in I, of *Fleet[I], seen cluster.Instance) {
	kept := in.kept()
	kept.Instance, kept.service, kept.abandon = seen, &of.Service, func() {}
	kept.drop = func() {
		delete(of.Instances, seen.ID)
		of.order = nil
	}
	kept.begun, kept.ready, kept.gone, kept.stuck = make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{})
	if seen.State == cluster.Ready {
		kept.loaded(seen)
	}
	of.Instances[seen.ID], of.order = in, nil
	k.instances[seen.ID] = in
}

// Start makes the backend start an added instance as soon as the instances in after, whose
// room it needs, are gone.
func (k *Keeper[I]) Start(in I, after []cluster.InstanceID) { k.StartAs(in, in.kept().Config, after) }

// StartAs is Start with another config than the instance is to have. The caller changes it later.
func (k *Keeper[I]) StartAs(in I, config cluster.Config, after []cluster.InstanceID) {
	kept := in.kept()
	spec := kept.InstanceSpec
	spec.Config = config
	k.options.Logger.Debug().Str("function", spec.Function).Str("instance", string(spec.ID)).Stringer("config", spec.Config).Msg("starting an instance")
	k.After(in, after, func(ctx context.Context, err error) {
		if err == nil {
			err = k.mayStart(kept)
		}
		if err == nil {
			var started cluster.Instance
			if started, err = k.options.Backend.Start(ctx, spec); err == nil && !slices.Equal(started.Devices, spec.Devices) {
				k.options.Lock.Lock()
				kept.Devices = started.Devices // The backend's choice; the plan's had no room any more.
				k.options.Lock.Unlock()
			}
		}
		close(kept.begun)
		if err != nil {
			var refused *cluster.RefusedError
			var stuck stuckError
			blameless := errors.As(err, &refused)
			if errors.As(err, &stuck) {
				blameless = true
				k.options.Lock.Lock()
				kept.service.Failures.Failed(time.Now(), err.Error())
				k.options.Lock.Unlock()
			}
			k.Observe(cluster.Instance{InstanceSpec: spec, State: cluster.Exited, Reason: err.Error(), Blameless: blameless})
		}
	})
}

// stuckError says that an instance cannot be stopped whose room another one needs.
type stuckError struct{ id cluster.InstanceID }

func (e stuckError) Error() string {
	return fmt.Sprintf("the instance %s cannot be stopped, and its room was needed; it is tried again, and starts use other room", e.id)
}

// After runs f in the background, without the lock, as soon as the instances in gone are
// gone. If the instance is retired before that, or one of those cannot be stopped, f gets an
// error: a process in uninterruptible sleep may never end.
func (k *Keeper[I]) After(in I, gone []cluster.InstanceID, f func(ctx context.Context, err error)) {
	var leaving []*Kept
	for _, id := range gone {
		if other, ok := k.instances[id]; ok {
			leaving = append(leaving, other.kept())
		}
	}
	ctx, abandon := context.WithCancel(k.Context())
	in.kept().abandon = abandon
	k.Begin(func() {
		defer abandon()
		var err error
		for _, other := range leaving {
			select {
			case <-other.gone:
			case <-other.stuck:
				err = stuckError{other.ID}
			case <-ctx.Done():
			}
		}
		f(ctx, cmp.Or(ctx.Err(), err))
	})
}

// mayStart returns an error if another replica has begun to lead while an instance waited
// for room. The instance then counts as retired. The lock is not held.
func (k *Keeper[I]) mayStart(in *Kept) error {
	if k.options.Replicas.Leads() {
		return nil
	}
	k.options.Lock.Lock()
	defer k.options.Lock.Unlock()
	in.Retiring, in.Stopping = true, true
	return errFollowing
}

// Retire stops an instance after its requests in flight are answered, or at the end of its
// grace. A replica that does not lead only marks it, and leaves stopping to the leader.
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
		k.drain(ctx, kept) // At the end of the grace it is stopped anyway.
		cancel()
		k.stop(kept.ID, k.options.StopGrace, kept.stuck)
	})
}

// drain makes all replicas stop using an instance. It returns when none of them has a
// request on it, or when ctx ends.
func (k *Keeper[I]) drain(ctx context.Context, in *Kept) {
	var others sync.WaitGroup
	others.Go(func() { k.options.Replicas.Drain(ctx, in.ID) })
	_ = in.service.Dispatcher.Drain(ctx, in.ID) // After an error it is stopped anyway.
	others.Wait()
}

// Left makes the dispatcher send nothing new to an instance that somebody else stops.
func (k *Keeper[I]) Left(in I) {
	kept := in.kept()
	if kept.Retiring {
		return
	}
	kept.Retiring, kept.Stopping = true, true
	k.Begin(func() { _ = kept.service.Dispatcher.Drain(k.Stops(), kept.ID) })
}

// Lost stops an instance that broke off an exchange, without draining it. One that only answers with
// errors is drained: requests may be on it that it will answer well. Dispatchers call it. The lock is
// not held.
func (k *Keeper[I]) Lost(id cluster.InstanceID, cause error) {
	k.options.Lock.Lock()
	defer k.options.Lock.Unlock()
	in, ok := k.instances[id]
	if !ok || in.kept().Retiring {
		return
	}
	if errors.Is(cause, health.ErrAlone) && k.options.Replicas.Leads() {
		k.options.Logger.Warn().Str("function", in.kept().Function).Str("instance", string(id)).AnErr("cause", cause).Msg("replacing an instance")
		k.happened(in.kept(), decisions.Replace, cause.Error(), "")
		k.Retire(in, cause.Error())
		k.options.Wake()
		return
	}
	in.kept().Retiring, in.kept().Fault = true, cause
	if !k.options.Replicas.Leads() {
		k.options.Replicas.Lost(id, cause)
		return
	}
	k.discard(in.kept())
}

// Suspect takes in that an instance does not answer, or fails more than others (suspect), or serves again. A
// dispatcher calls it. The lock is not held.
func (k *Keeper[I]) Suspect(id cluster.InstanceID, suspect bool) {
	k.options.Lock.Lock()
	defer k.options.Lock.Unlock()
	in, ok := k.instances[id]
	if !ok || in.kept().Suspect == suspect {
		return
	}
	kept := in.kept()
	kept.Suspect = suspect
	said := "an instance does not answer, or fails more than the others; these serve in its place"
	if !suspect {
		said = "an instance serves again"
	}
	k.options.Logger.Warn().Str("function", kept.Function).Str("instance", string(id)).Msg(said)
	kind := decisions.Healthy
	if suspect {
		kind = decisions.Unhealthy
	}
	k.happened(kept, kind, "", "")
	if kept.There() {
		in.Up()
	}
	k.options.Wake()
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

// discard stops a lost instance.
func (k *Keeper[I]) discard(in *Kept) {
	in.Stopping = true
	k.options.Logger.Warn().Str("function", in.Function).Str("instance", string(in.ID)).AnErr("cause", in.Fault).Msg("lost an instance")
	why := "it broke off an exchange"
	if in.Fault != nil {
		why += " (" + in.Fault.Error() + ")"
	}
	k.happened(in, decisions.Replace, why, "")
	k.Begin(func() { k.stop(in.ID, lostGrace, in.stuck) })
	k.options.Wake()
}

// stop asks the backend to stop an instance, again and again until it has, or the keeper
// ends. It closes stuck, unless that is nil, once the backend has failed to. The lock is not held.
func (k *Keeper[I]) stop(id cluster.InstanceID, grace time.Duration, stuck chan<- struct{}) {
	for n := 1; ; n++ {
		ctx, cancel := context.WithTimeout(k.Stops(), grace)
		err := k.options.Backend.Stop(ctx, id)
		cancel()
		if err == nil || k.Ended() {
			return
		}
		k.options.Logger.Error().Str("instance", string(id)).Err(err).Msg("could not stop the instance; trying again")
		if n == 1 && stuck != nil {
			close(stuck)
		}
		backoff.Wait(k.Context(), backoff.Pause(n, firstRetry, longestRetry))
	}
}

// Observe applies an instance's new state. The lock is not held.
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
	kept.State, kept.Network, kept.Address, kept.Reason, kept.Blameless = seen.State, seen.Network, seen.Address, seen.Reason, seen.Blameless
	in.Seen(before, seen)
	switch {
	case seen.State == cluster.Exited:
		k.gone(in)
	case seen.State == cluster.Stopping && !k.options.Replicas.Alone():
		k.Left(in)
	case seen.State == cluster.Ready && before != cluster.Ready:
		kept.loaded(seen)
		kept.service.Failures.Why = ""
		if k.options.Replicas.Leads() && kept.Role == cluster.Body { // No request waits for a shadow.
			kept.service.Metrics.ObserveCold(kept.ReadyAt.Sub(kept.StartedAt))
		}
		if kept.There() {
			in.Up()
		}
	}
	k.options.Wake()
}

// happened adds to the log of decisions what happened to an instance.
func (k *Keeper[I]) happened(in *Kept, kind decisions.Kind, why, detail string) {
	if !k.options.Replicas.Leads() {
		return
	}
	f := decisions.Fields{
		Instances: 1, Instance: string(in.ID), Node: in.Node, Shadow: in.Role == cluster.Shadow, Program: in.Kind == cluster.Process,
		Why: web.Conceal(why), Detail: web.Conceal(detail),
	}
	f.OfConfig(in.Config)
	k.options.Decisions.Add(time.Now(), in.Function, kind, f)
}

// gone removes an instance that exited.
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
	if kept.Fault == nil {
		k.happened(kept, decisions.Exit, "", kept.Why())
	}
	if in.Current() && !kept.Blameless {
		kept.service.Failures.Died(time.Now(), kept.ReadyAt, served, kept.Why())
	}
}

// TakeOver makes this replica, which begins to lead, responsible for all instances. found
// are the backend's instances. TakeOver stops those that the former leader was to stop. The
// lock is not held.
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
			k.Retire(in, "the former leader was to retire it")
		}
	}
}

// Free sets the free resources of nodes. It counts all instances, also those that the backend
// has not been asked to start yet.
func (k *Keeper[I]) Free(nodes []cluster.Node) {
	at := make(map[string]*cluster.Recount, len(nodes))
	for i := range nodes {
		at[nodes[i].Name] = nodes[i].Recount()
	}
	hold := func(in *cluster.Instance, held cluster.Resources) {
		for node, part := range cluster.Over(in.Node, in.Nodes, held) {
			if n, ok := at[node]; ok {
				n.Take(&in.InstanceSpec, part)
			}
		}
	}
	for _, in := range k.instances {
		hold(&in.kept().Instance, in.Holds())
	}
	for _, in := range k.unclaimed {
		hold(&in.Instance, in.Holds())
	}
	for _, n := range at {
		n.Done()
	}
}

// Blind reports whether err, of listing the nodes, is an error, and logs a new one once. The
// lock is not held, and only one goroutine calls it.
func (k *Keeper[I]) Blind(err error) bool {
	why := ""
	if err != nil {
		why = err.Error()
	}
	if why != k.blind && err != nil {
		k.options.Logger.Error().Err(err).Msg("could not list the nodes; no instance is started or stopped until this works")
	}
	k.blind = why
	return err != nil
}

// Sample reads the instances' usage in the background, unless the last reading is still in
// progress. The lock is not held.
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
			// An error means that it has exited or is stopping, so it uses nothing.
			used[id], _ = k.options.Backend.Usage(k.Context(), id)
		}
		k.options.Lock.Lock()
		defer k.options.Lock.Unlock()
		k.reading = false
		k.setUsage(used)
	})
}

// setUsage stores a reading and sums it up in the metrics by function.
func (k *Keeper[I]) setUsage(now map[cluster.InstanceID]cluster.Resources) {
	sums := map[*metrics.FunctionMetrics]cluster.Resources{} // A function may have several fleets.
	for id, in := range k.instances {
		kept := in.kept()
		kept.Usage = now[id]
		if kept.service.hidden {
			continue
		}
		sums[kept.service.Metrics] = sums[kept.service.Metrics].Add(kept.Usage)
	}
	if !k.options.Replicas.Leads() {
		return
	}
	for of, sum := range sums {
		of.SetUsed(sum)
	}
}

// Close stops every instance and waits until all are gone; it kills those that remain when
// ctx ends. If the provider has other replicas, it leaves the instances to them. Call End
// first. The lock is not held.
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

// stops returns functions that each stop one instance.
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
