package processes

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/decisions"
	"github.com/faas-infer/faas-infer/provider/keeper"
	"github.com/faas-infer/faas-infer/scaling"
)

// look looks at every function's load and starts or retires instances to match. It
// returns the time until the next look if nothing happens before.
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
		fn.Problems.Look(c.options.Decisions, now, fn.Name, fn.problem)
		fn.Record(true, func(in *instance) (string, bool) { return in.Config.String(), in.There() })
	}
	if busy {
		return c.options.Tick
	}
	return keeper.IdleTicks * c.options.Tick
}

// decide asks the scaler of each function how many instances it should have. It
// reports whether a function has too few.
func (c *Controller) decide(now time.Time) (short bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, fn := range c.functions {
		current, _ := fn.staying()
		short = len(current) < fn.replicas.Follow(now, fn.load(), fn.Name, &c.options.Logger, c.options.Decisions) || short
	}
	return short
}

// reconcile starts the missing instances of a function and retires the surplus ones.
// It reports whether the function needs another look soon. The lock is held.
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
			c.decided(now, fn, decisions.Stop, in.Node, "the function needs "+strconv.Itoa(wanted)+" of "+strconv.Itoa(len(current))+" instances")
			c.keeper.Retire(in, "no longer needed")
		}
	}
	// Old instances serve until enough current ones are proven.
	fn.handOver(proven, wanted)
	kept := old[:0]
	for i, in := range old {
		if fn.handed || in.passed || i < len(old)-wanted {
			c.decided(now, fn, decisions.Stop, in.Node, string(scaling.Superseded))
			c.keeper.Retire(in, "replaced")
			continue
		}
		kept = append(kept, in)
	}
	old = kept
	missing := wanted - len(current)
	if missing > 0 && free != nil && !fn.Failures.Pausing(now) {
		c.grow(now, fn, missing, old, free)
	} else if missing <= 0 {
		fn.Unplaced = ""
	}
	return fn.replicas.Busy(fn.load()) || missing > 0 || ready < wanted || len(old) > 0
}

// steady is how long an instance must have been ready before it replaces one of an
// earlier deployment. After failures the time is [keeper.Settled].
const steady = time.Second

// proven reports whether an instance of the present deployment has been ready for long
// enough to replace an older one.
func (fn *function) proven(now time.Time, in *instance) bool {
	if fn.Failures.Count > 0 {
		return now.Sub(in.ReadyAt) >= keeper.Settled
	}
	return now.Sub(in.ReadyAt) >= steady
}

// maxStarting and maxOwnStarting are the maximum numbers of instances that start at a
// time, altogether and of one function. Starting takes processor time that serving
// instances need. A function that needs thousands must not delay others.
const (
	maxStarting    = 32
	maxOwnStarting = 8
)

// grow starts the missing instances as far as there is room. Those above
// maxOwnStarting and maxStarting wait for the next look. If there is no room, grow
// retires an older instance to make some.
func (c *Controller) grow(now time.Time, fn *function, missing int, old []*instance, free *room) {
	unplaced := ""
	for starts := fn.starting(); missing > 0 && starts < maxOwnStarting && free.starting < maxStarting; missing-- {
		spec := fn.spec(keeper.NewID(fn.Name), "")
		if !free.take(&spec) {
			unplaced = fmt.Sprintf("the function needs %d more instances, and no machine has room for one (requests.cpu %dm, requests.memory %d MiB%s)",
				missing, fn.config().CPU, fn.config().Memory>>20, gpus(fn.config().GPU))
			break
		}
		c.start(fn, spec)
		c.decided(now, fn, decisions.Start, spec.Node, fn.whyMissing(old))
		starts++
		free.starting++
	}
	if unplaced != "" && len(old) > 0 && !fn.changing() {
		c.decided(now, fn, decisions.Stop, old[0].Node, "the later revision needs the room")
		c.keeper.Retire(old[0], "makes room for its successor")
	}
	if unplaced != fn.Unplaced && unplaced != "" {
		c.options.Logger.Warn().Str("function", fn.Name).Str("why", unplaced).Msg("the function cannot have all the instances that it needs")
	}
	fn.Unplaced = unplaced
}

// whyMissing is why the function gets an instance: there are old ones, or fewer than it needs.
func (fn *function) whyMissing(old []*instance) string {
	load := fn.load()
	switch {
	case len(old) > 0:
		return string(scaling.NewRevision)
	case load.Waiting > 0 && load.InFlight == 0:
		return string(scaling.Waiting)
	case fn.Failures.Why != "":
		return "an earlier instance exited"
	}
	return "the function needs " + strconv.Itoa(fn.replicas.Wanted()) + " of them"
}

// decided adds what is done about an instance on a node to the log of decisions.
func (c *Controller) decided(now time.Time, fn *function, kind decisions.Kind, node, why string) {
	f := decisions.Fields{Instances: 1, Program: true, Node: node, Why: why, Waiting: fn.load().Waiting}
	f.OfConfig(fn.config())
	c.options.Decisions.Add(now, fn.Name, kind, f)
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

// changing reports whether an instance is starting or being retired. There may be
// room soon then.
func (fn *function) changing() bool {
	for _, in := range fn.Instances {
		if in.Retiring || in.Current() && in.State == cluster.Starting {
			return true
		}
	}
	return false
}

// room holds the nodes' free resources and the number of instances that are starting.
type room struct {
	nodes    []cluster.Node
	starting int
}

// fill subtracts what all instances hold from the nodes, and counts those that are
// starting.
func (c *Controller) fill(r *room) {
	c.keeper.Free(r.nodes)
	for _, in := range c.keeper.Instances() {
		if in.State == cluster.Starting {
			r.starting++
		}
	}
}

// gpus names a share of whole GPUs for a message; "" for none.
func gpus(percent int) string {
	if percent == 0 {
		return ""
	}
	return fmt.Sprintf(", limits.nvidia.com/gpu %d", percent/cluster.WholeDevice)
}

// take finds the node with the most free CPU, then memory, and takes what an instance needs from it:
// it sets the instance's node and GPUs. It returns false if that fits nowhere.
func (r *room) take(spec *cluster.InstanceSpec) bool {
	best, need := -1, spec.Config.Resources
	for i := range r.nodes {
		n := &r.nodes[i]
		if !fits(need, n.Free) || need.GPU > 0 && n.Empty(need.GPU/cluster.WholeDevice) == nil {
			continue
		}
		if best < 0 || cmp.Or(cmp.Compare(n.Free.CPU, r.nodes[best].Free.CPU), cmp.Compare(n.Free.Memory, r.nodes[best].Free.Memory)) > 0 {
			best = i
		}
	}
	if best < 0 {
		return false
	}
	n := &r.nodes[best]
	spec.Node = n.Name
	if need.GPU > 0 {
		spec.Devices = n.Empty(need.GPU / cluster.WholeDevice)
	}
	n.Take(spec, need)
	return true
}

// fits reports whether need fits into free. A resource that is not requested always
// fits, even if free is negative.
func fits(need, free cluster.Resources) bool {
	return (need.CPU == 0 || need.CPU <= free.CPU) && (need.Memory == 0 || need.Memory <= free.Memory) && (need.GPU == 0 || need.GPU <= free.GPU)
}
