package processes

import (
	"cmp"
	"fmt"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/keeper"
)

// look looks at every function's load and makes the number of its instances what
// it is to be. It returns after how long to do so again if nothing happens
// before.
func (c *Controller) look(now time.Time) time.Duration {
	var free *room
	if c.decide(now) {
		nodes, err := c.options.Backend.Nodes(c.keeper.Context())
		if c.keeper.Ended() {
			return c.options.Tick
		}
		if !c.keeper.Blind(err) {
			free = &room{nodes: nodes}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keeper.StopUnclaimed(now, func(name string) bool { return c.functions[name] != nil })
	if free != nil {
		c.fill(free)
	}
	busy := false
	for _, fn := range c.functions {
		busy = c.reconcile(now, fn, free) || busy
		fn.Tell(now)
		fn.Record(true, func(in *instance) (string, bool) { return in.Config.String(), in.There() })
	}
	if busy {
		return c.options.Tick
	}
	return idleTicks * c.options.Tick
}

// decide asks scaling for every function, and reports whether one of them has
// too few instances.
func (c *Controller) decide(now time.Time) (short bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, fn := range c.functions {
		before := fn.replicas.Wanted()
		after := fn.replicas.Next(now, fn.load())
		if after != before {
			c.options.Logger.Info().Str("function", fn.Name).Int("from", before).Int("to", after).Msg("scaling")
		}
		current, _ := fn.staying()
		short = short || len(current) < after
	}
	return short
}

// reconcile starts what is missing of a function and retires what is not wanted.
// It reports whether there is more to do soon. The lock is held.
func (c *Controller) reconcile(now time.Time, fn *function, free *room) (busy bool) {
	wanted := fn.replicas.Wanted()
	current, old := fn.staying()
	ready, proven := 0, 0
	for _, in := range current {
		if in.There() {
			ready++
			fn.Failures.Serves(now, in.ReadyAt)
			if fn.proven(now, in) {
				proven++
			}
		}
	}
	if extra := len(current) - wanted; extra > 0 {
		for _, in := range current[:extra] {
			c.keeper.Retire(in, "not wanted any more")
		}
	}
	// Older ones serve until as many others do in their place.
	if extra := len(old) - max(0, wanted-proven); extra > 0 {
		for _, in := range old[:extra] {
			c.keeper.Retire(in, "replaced")
		}
		old = old[extra:]
	}
	missing := wanted - len(current)
	if missing > 0 && free != nil && !fn.Failures.Pausing(now) {
		c.grow(fn, missing, old, free)
	} else if missing <= 0 {
		fn.Unplaced = ""
	}
	load := fn.load()
	busy = missing > 0 || ready < wanted || len(old) > 0 || load.InFlight > 0 || load.Waiting > 0 || load.Arrivals != fn.arrivals
	fn.arrivals = load.Arrivals
	return busy
}

// steady is how long an instance must have been ready before one of an earlier
// deployment goes in exchange. Where others before it have not lived, that takes as long
// as [keeper.Settled].
const steady = time.Second

// proven reports whether an instance of the present deployment can be relied upon.
func (fn *function) proven(now time.Time, in *instance) bool {
	if fn.Failures.Count > 0 {
		return now.Sub(in.ReadyAt) >= keeper.Settled
	}
	return now.Sub(in.ReadyAt) >= steady
}

// How many instances start at a time, altogether and of one function: starting
// takes processor time, which those that serve need, and a function that wants
// thousands is not to keep others waiting.
const (
	maxStarting    = 32
	maxOwnStarting = 8
)

// grow starts so many instances, as far as there is room; those above what may
// start at a time wait for the next look. Where there is no room, an older one
// goes to make some.
func (c *Controller) grow(fn *function, missing int, old []*instance, free *room) {
	unplaced := ""
	for starts := fn.starting(); missing > 0 && starts < maxOwnStarting && free.starting < maxStarting; missing-- {
		node, ok := free.take(fn.config().Resources)
		if !ok {
			unplaced = fmt.Sprintf("%d more instances are wanted, and no machine has the free resources that one holds (requests.cpu %dm, requests.memory %d MiB)",
				missing, fn.config().CPU, fn.config().Memory>>20)
			break
		}
		c.start(fn, node)
		starts++
		free.starting++
	}
	if unplaced != "" && len(old) > 0 && !fn.changing() {
		c.keeper.Retire(old[0], "makes room for its successor")
	}
	if unplaced != fn.Unplaced && unplaced != "" {
		c.options.Logger.Warn().Str("function", fn.Name).Str("why", unplaced).Msg("the function cannot have all the instances that it needs")
	}
	fn.Unplaced = unplaced
}

// starting counts the instances that are not ready yet.
func (fn *function) starting() (n int) {
	for _, in := range fn.Instances {
		if in.State == cluster.Starting {
			n++
		}
	}
	return n
}

// changing reports whether an instance is on its way in or out, so that there
// may be room soon.
func (fn *function) changing() bool {
	for _, in := range fn.Instances {
		if in.Retiring || in.Current() && in.State == cluster.Starting {
			return true
		}
	}
	return false
}

// room is what is free on the nodes, and how many instances are starting there.
type room struct {
	nodes    []cluster.Node
	starting int
}

// fill counts what everything holds that was begun.
func (c *Controller) fill(r *room) {
	c.keeper.Free(r.nodes)
	for _, in := range c.keeper.Instances() {
		if in.State == cluster.Starting {
			r.starting++
		}
	}
}

// take finds the node with the most processor time free, then memory, and takes
// the resources of it; false if they fit nowhere.
func (r *room) take(need cluster.Resources) (node string, ok bool) {
	best := -1
	for i, n := range r.nodes {
		if !fits(need, n.Free) {
			continue
		}
		if best < 0 || cmp.Or(cmp.Compare(n.Free.CPU, r.nodes[best].Free.CPU), cmp.Compare(n.Free.Memory, r.nodes[best].Free.Memory)) > 0 {
			best = i
		}
	}
	if best < 0 {
		return "", false
	}
	r.nodes[best].Free = r.nodes[best].Free.Sub(need)
	return r.nodes[best].Name, true
}

// fits is Fits where what is not asked for fits always, also where more is held
// than there is.
func fits(need, free cluster.Resources) bool {
	return (need.CPU == 0 || need.CPU <= free.CPU) && (need.Memory == 0 || need.Memory <= free.Memory) && (need.GPU == 0 || need.GPU <= free.GPU)
}
