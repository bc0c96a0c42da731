package control

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/dispatch"
	"github.com/faas-infer/faas-infer/provider/keeper"
	"github.com/faas-infer/faas-infer/provider/peer"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// peers is what a controller does if its provider has several replicas.
// [peer.Replica] knows which of them leads and what the others have reported.
type peers struct {
	mu        *sync.Mutex
	keeper    *keeper.Keeper[*instance]
	functions map[string]*function
	replica   *peer.Replica
	backend   cluster.Backend
	// claim takes over a function's instances.
	claim func(*function)
	wake  func()
	log   zerolog.Logger
}

var _ peer.Controlled = (*peers)(nil)

// turn decides whether this replica leads during one look. A replica that begins to lead
// already knows the instances and the load. It still reads the backend's instances again,
// since the former leader may have stopped halfway through a change.
func (c *peers) turn() (leads bool) {
	leads, changed, err := c.replica.Turn(func() error {
		found, err := c.backend.Instances(c.keeper.Context())
		if err == nil {
			c.keeper.TakeOver(found)
		}
		return err
	})
	switch {
	case err != nil:
		c.log.Error().Err(err).Msg("could not list the instances; none is started or stopped until this works")
	case changed && leads:
		c.log.Info().Msg("this replica of the provider now starts and stops instances")
	case changed:
		c.log.Info().Msg("another replica of the provider now starts and stops instances")
	}
	if changed {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, fn := range c.functions {
			fn.Unrecord()
			if leads && fn.measured() { // It may have left alone what the former leader's trials hold.
				c.claim(fn)
			}
		}
	}
	return leads
}

// takeNews applies what the other replicas have reported. An overdue instance is one that
// this replica left alone, but that the leader did not park or stop. If it was to be parked,
// it serves again. If it was to be stopped, it is reported as lost, since its connections
// are closed. The lock is held.
func (c *peers) takeNews(news peer.News) {
	if !c.replica.Led() {
		for _, id := range news.Overdue {
			in, ok := c.keeper.Instance(id)
			if ok && in.Retiring && !in.Stopping {
				c.replica.Lost(id, errLeftOver)
			}
		}
	} else {
		for id, why := range news.Lost {
			c.keeper.LostElsewhere(id, why)
		}
	}
	for _, id := range news.Overdue {
		c.replica.Settled(id)
		if in, ok := c.keeper.Instance(id); ok && in.away && !in.Parked {
			in.back()
		}
	}
}

// errLeftOver is the fault of an instance that the leader was to stop and did not.
var errLeftOver = errors.New("the leader was to stop it, and it still runs")

// statsOf returns what all replicas have seen of the function's requests. The next call
// overwrites the result. The lock is held.
func statsOf(fn *function) dispatch.Stats {
	fn.dispatcher.Read(&fn.stats)
	fn.reported(&fn.stats)
	fn.replica.Add(fn.Name, &fn.stats)
	return fn.stats
}

// Seen implements [keeper.Instance]. A replica that follows takes over the config and the
// parking that the leader has given the instance, and the body that it has given a shadow. The
// leader ignores it: it knows more than the backend.
func (in *instance) Seen(before cluster.State, seen cluster.Instance) {
	replica := in.function.replica
	if in.Role == cluster.Trial {
		return
	}
	if in.Role == cluster.Shadow {
		if !replica.Led() || !replica.Leads() {
			in.Body = seen.Body
		}
		return
	}
	if before != seen.State || replica.Led() && replica.Leads() || in.previousConfig != nil {
		return
	}
	if seen.Parked != in.Parked {
		in.Parked = seen.Parked
		if in.Parked && !in.away && in.function.dispatcher.Park(in.ID) {
			in.away, in.idleSince = true, time.Now()
		}
	}
	if !seen.Parked {
		in.reconfigure(seen.Config)
	}
}

// reconfigure makes an instance serve with the config that the leader has given it.
func (in *instance) reconfigure(config cluster.Config) {
	changed := config != in.Config
	if changed && !in.can(config) {
		return
	}
	in.Parked = false
	if changed {
		in.Config, in.config, in.mixedUntil = config, config.String(), time.Now().Add(2*in.exec)
		in.refit()
	}
	if in.away {
		in.function.replica.Settled(in.ID)
		in.back()
	}
}

// recognise gives an instance the served revision and its times, if the backend says that
// it was started for that revision. This happens when another replica learned of the
// revision first.
func (in *instance) recognise() {
	fn, a := in.function, in.function.artefact(in.Artefact.Name)
	if fn.replica.Alone() || a == nil || in.origin != fn.Revision && !fn.knows(&in.Instance) || in.Model != a.Model || !sameContent(in.Bundle, a.Bundle) {
		return
	}
	if p := a.on(fn.types.kind(in.Node)); len(a.table(p, in.Config.Batch, capacity.ShareOf(in.Config))) > 0 {
		in.Revision, in.times = fn.Revision, p.times
	}
}

// discovered takes over a function's instances that another replica has started. The lock
// is held.
func (c *peers) discovered(function string) {
	if fn, ok := c.functions[function]; ok && fn.measured() {
		c.claim(fn)
	}
}

// Wake implements [peer.Controlled].
func (c *peers) Wake() { c.wake() }

// EachStats implements [peer.Controlled].
func (c *peers) EachStats(each func(function string, s dispatch.Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, fn := range c.functions {
		if dispatch.Arrivals(fn.dispatcher) == 0 {
			continue
		}
		s := fn.dispatcher.Stats()
		fn.reported(&s)
		each(name, s)
	}
}

// Leave implements [peer.Controlled].
func (c *peers) Leave(ctx context.Context, id cluster.InstanceID) error {
	c.mu.Lock()
	in, ok := c.keeper.Instance(id)
	if !ok {
		c.mu.Unlock()
		return nil
	}
	in.leaves()
	in.Retiring = true
	c.mu.Unlock()
	return in.function.dispatcher.Drain(ctx, id)
}

// Rest implements [peer.Controlled].
func (c *peers) Rest(id cluster.InstanceID) (rests, left bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	in, ok := c.keeper.Instance(id)
	if !ok || !in.serves() {
		return true, false // The dispatcher does not use it anyway.
	}
	since := in.function.dispatcher.Stats().Instances[id]
	if !in.function.dispatcher.Park(id) {
		return false, false
	}
	in.away, in.idleSince = true, since
	return true, true
}

// Resume implements [peer.Controlled].
func (c *peers) Resume(id cluster.InstanceID, config cluster.Config) {
	c.mu.Lock()
	defer c.mu.Unlock()
	in, ok := c.keeper.Instance(id)
	if !ok || !in.There() || in.previousConfig != nil {
		return
	}
	if config == (cluster.Config{}) {
		config = in.Config
	}
	in.reconfigure(config)
}

// sameContent reports whether two bundles may hold the same model, judged by their names.
// The name of an image holds the digest of its content, that of a directory does not.
func sameContent(a, b string) bool {
	const digest = "@sha256:"
	return a == b || !strings.Contains(a, digest) && !strings.Contains(b, digest)
}
