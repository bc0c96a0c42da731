package control

import (
	"context"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/dispatch"
	"github.com/faas-infer/faas-infer/provider/peer"
)

var _ peer.Local = (*Controller)(nil)

// Load implements [peer.Local]: it tells another replica what this one's dispatchers
// have seen, with what was executed after the first since batches.
func (c *Controller) Load(since uint64) peer.Load {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	l := peer.Load{Functions: map[string]peer.FunctionLoad{}, Executed: c.ran.Since(since), Next: c.ran.Total}
	for name, fn := range c.functions {
		s := fn.dispatcher.Stats()
		if s.Arrivals == 0 {
			continue
		}
		c.unused(fn, s)
		l.Functions[name] = peer.FunctionLoad{Arrivals: s.Arrivals, Cold: s.Cold, InTime: s.InTime, Late: s.Late, Refused: s.Refused, Waiting: s.Waiting, Idle: fn.idle(now, s)}
	}
	if len(c.broken) > 0 {
		l.Lost = make(map[cluster.InstanceID]string, len(c.broken))
		for id, why := range c.broken {
			l.Lost[id] = why
		}
	}
	return l
}

// idle is for how long the instances that this replica has used have been idle.
func (fn *function) idle(now time.Time, s dispatch.Stats) map[cluster.InstanceID]int64 {
	idle := map[cluster.InstanceID]int64{}
	for id, in := range fn.instances {
		since, ok := s.Instances[id]
		switch {
		case !ok:
		case since.IsZero():
			idle[id] = peer.Busy
		case since.After(in.unused):
			idle[id] = now.Sub(since).Milliseconds()
		}
	}
	return idle
}

// Drain implements [peer.Local]: the dispatcher gives an instance nothing new, at the
// leader's word, and nothing of it is in flight any more when it returns without an
// error.
func (c *Controller) Drain(ctx context.Context, id cluster.InstanceID) error {
	c.mu.Lock()
	in, ok := c.instances[id]
	if !ok {
		c.mu.Unlock()
		return nil
	}
	in.retiring, in.asked = true, time.Now()
	c.mu.Unlock()
	return in.function.dispatcher.Drain(ctx, id)
}

// Park implements [peer.Local]: the dispatcher gives an instance nothing until Serve,
// unless it needs it.
func (c *Controller) Park(id cluster.InstanceID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	in, ok := c.instances[id]
	if !ok || !in.serves() {
		return true // It gives it nothing.
	}
	since := in.function.dispatcher.Stats().Instances[id]
	if !in.function.dispatcher.Park(id) {
		return false
	}
	in.away, in.idleSince, in.asked = true, since, time.Now()
	return true
}

// Serve implements [peer.Local]: an instance takes batches, with this config.
func (c *Controller) Serve(id cluster.InstanceID, config cluster.Config) {
	c.mu.Lock()
	defer c.mu.Unlock()
	in, ok := c.instances[id]
	if !ok || !in.there() || in.before != nil || c.leading() {
		return
	}
	if config == (cluster.Config{}) {
		config = in.Config
	}
	c.reconfigure(in, config)
}
