package control

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/profiler/correction"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/decisions"
	"github.com/faas-infer/faas-infer/provider/dispatch"
	"github.com/faas-infer/faas-infer/provider/keeper"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/variant"
)

const (
	// reliefPause is the time between two attempts to relieve an instance. By then the
	// executions show whether the first one has helped.
	reliefPause = 10 * time.Second
	// replacePause is the time between two instances of a function that are replaced by
	// ones on other nodes.
	replacePause = time.Minute
)

// relief is what is done against the interference with an instance.
type relief struct {
	// next is when it may be tried again. replaced: an instance on another node is to
	// take its place.
	next     time.Time
	replaced bool
	// moved: the backend has moved it, which may help. stuck: it cannot be moved, or that
	// has not helped.
	moved, stuck bool
	// withheld are the executions since it was last seen without interference.
	withheld []execution
}

// execution is a batch that an instance has executed with a share.
type execution struct {
	share        profiler.Share
	size         int
	exec, beside time.Duration
	elements     int64
}

// observation is the execution as the correction of times takes it.
func (x execution) observation() correction.Observation {
	return correction.Observation{Share: x.share, Batch: x.size, Elements: x.elements, Exec: x.exec, Beside: x.beside}
}

// executed takes in an execution, for the instance's state and for the artefact's times. The
// times of a movable instance get it only when there is no sign of interference, or no way out
// of it: what a move ends must not correct them. Corrected times would make the dispatcher
// refuse requests for another ten seconds after the move.
func (in *instance) executed(p *pace, e dispatch.Executed, movable bool) {
	x := execution{capacity.ShareOf(in.Config), e.Size, e.Exec, e.Beside, e.Elements}
	if e.Size <= len(in.promised) { // A long request is no interference.
		in.follower.Executed(variant.Part(x.share), e.Size, p.times.Normal(x.observation()), in.promised[e.Size-1])
	}
	switch {
	case !movable || in.relief.stuck:
		p.observe(in, x)
	case !in.relief.moved:
		in.relief.withheld = append(in.relief.withheld, x)
	}
}

// release gives the times the executions that were withheld.
func (in *instance) release(p *pace) {
	for _, x := range in.relief.withheld {
		if x.share == capacity.ShareOf(in.Config) {
			p.observe(in, x)
		}
	}
	in.relief.withheld = in.relief.withheld[:0]
}

// loaded reports whether the instance has loaded its artefact and holds its share. One that
// does not answer at the moment counts, because interference may be the cause.
func (in *instance) loaded() bool {
	return in.State == cluster.Ready && !in.Retiring && !in.away
}

// peak is r_up by the usual times of the instance's artefact. The corrected times rise with
// interference, and the instance would seem to be overloaded.
func (in *instance) peak(p *pace) float64 {
	exec := in.exec
	if in.batch <= len(in.promised) {
		exec = time.Duration(p.usual.Ratio(variant.Part(capacity.ShareOf(in.Config)), in.batch) * float64(in.promised[in.batch-1]))
	}
	return capacity.BoundsOf(in.planned(), exec, in.function.Inference.SLO, capacity.Exact).Up
}

// interference follows the states of instances and relieves those that others slow down. Only it
// changes their follower and relief.
type interference struct {
	mu     *sync.Mutex
	keeper *keeper.Keeper[*instance]
	wake   func()
	// led reports whether this replica led at its last look. move and eligible are those of Options.
	led      func() bool
	move     Mover
	eligible func(f *provider.Function) (nodes []string, why string)
	// nodes are those at the latest look.
	nodes []cluster.Node
}

// follow updates the states of the function's instances, by its load in requests per second,
// and relieves those that others interfere with. The lock is held.
func (c *interference) follow(now time.Time, fn *function, load float64, nodes []cluster.Node) {
	c.nodes = nodes
	total, calm := 0.0, map[siblings]int{}
	for _, in := range fn.Sorted() {
		if in.follower.Calm(now) {
			calm[in.siblings()]++
		}
		if p := in.pace(); p != nil && in.loaded() {
			total += in.peak(p)
			if in.Loading > 0 {
				in.own().loading = in.Loading
			}
		}
	}
	for _, in := range fn.Sorted() {
		p := in.pace()
		if p == nil || !in.loaded() {
			in.follower, in.relief = variant.Follower{}, relief{}
			continue
		}
		peak, before := in.peak(p), in.follower.State()
		others := calm[in.siblings()]
		if in.follower.Calm(now) {
			others--
		}
		observed := in.follower.Look(now, &p.usual, load*peak/max(total, peak), peak, others > 0)
		state := in.follower.State()
		if state != before {
			fn.log.Debug().Str("instance", string(in.ID)).Str("node", in.Node).Str("variant", in.Artefact.Name).Stringer("state", state).Msg("an instance's state changed")
		}
		if state == variant.Interfered {
			c.relieve(now, in)
		} else if observed && !in.follower.Doubtful() {
			in.release(p)
			in.relief = relief{next: in.relief.next, withheld: in.relief.withheld}
		}
		if in.relief.stuck || !c.movable(in) {
			in.release(p)
		}
	}
}

// movable reports whether the backend may be able to move the instance. It must have whole
// cores: the kernel moves an instance without cores of its own by itself. A set has several
// processes, which are not moved together. An instance on a GPU hardly computes on its cores.
func (c *interference) movable(in *instance) bool {
	return c.move != nil && in.Config.CPU%1000 == 0 && in.Config.GPU == 0 && in.Config.Members() == 1
}

// siblings are the instances of a function with the same artefact and share: if another of them is
// calm, then what slows one down is not the model.
type siblings struct {
	times *correction.Correction
	share profiler.Share
}

func (in *instance) siblings() siblings {
	return siblings{in.times, capacity.ShareOf(in.Config)}
}

// relieve moves an instance to other cores, or has it replaced by one on another node if it
// cannot be moved or that has not helped. The lock is held.
func (c *interference) relieve(now time.Time, in *instance) {
	if !c.led() || now.Before(in.relief.next) || in.previousConfig != nil {
		return
	}
	in.relief.next = now.Add(reliefPause)
	if !c.movable(in) || in.relief.moved {
		in.relief.stuck = true
		c.replaceElsewhere(now, in)
		return
	}
	c.keeper.Begin(func() {
		moved, err := c.move(c.keeper.Context(), in.ID)
		c.mu.Lock()
		defer c.mu.Unlock()
		log := in.function.log.With().Str("instance", string(in.ID)).Logger()
		switch {
		case in.State == cluster.Exited:
		case err != nil:
			in.relief.stuck = true
			log.Warn().Err(err).Msg("could not move an instance away from what interferes with it")
			decided(in.function, time.Now(), decisions.Relieve, failed(about(in, scaling.Reason{}), err))
		case moved:
			in.relief.moved, in.relief.stuck, in.relief.withheld = true, false, nil
			log.Info().Msg("moved an instance to other cores, because something interferes with it")
			decided(in.function, time.Now(), decisions.Relieve, about(in, scaling.Reason{Why: decisions.Moved}))
		default:
			in.relief.stuck = true
			c.replaceElsewhere(now, in)
		}
	})
}

// replaceElsewhere makes the engine start another instance on a node without interference
// and then stop this one, if such a node has room. A set over several nodes stays. The lock is
// held.
func (c *interference) replaceElsewhere(now time.Time, in *instance) {
	fn := in.function
	if in.relief.replaced || in.Nodes != nil || now.Sub(fn.replacedAt) < replacePause || in.follower.State() != variant.Interfered {
		return
	}
	var eligible []string
	if c.eligible != nil {
		eligible, _ = c.eligible(fn.Function)
	}
	allowed := make(map[string]bool, len(eligible))
	for _, name := range eligible {
		allowed[name] = true
	}
	troubled := fn.troubledNodes()
	if !slices.ContainsFunc(c.nodes, func(n cluster.Node) bool {
		return !troubled[n.Name] && (eligible == nil || allowed[n.Name]) && n.Fits(in.Holds(), tenantOf(fn))
	}) {
		return
	}
	in.relief.replaced, fn.replacedAt = true, now
	decided(fn, now, decisions.Relieve, about(in, scaling.Reason{}))
	fn.log.Info().Str("instance", string(in.ID)).Str("node", in.Node).Msg("replacing an instance by one on another node, because something interferes with it")
	c.wake()
}

// troubledNodes are the nodes on which the function's instances are interfered with.
func (fn *function) troubledNodes() map[string]bool {
	nodes := map[string]bool{}
	for _, in := range fn.Instances {
		if in.follower.State() == variant.Interfered {
			for node := range in.Shares() {
				nodes[node] = true
			}
		}
	}
	return nodes
}

// avoid returns the nodes without interference of the allowed ones (nil for all), while the
// function has an instance to replace. It returns allowed itself if none would be left.
func (fn *function) avoid(allowed []string, nodes []cluster.Node) []string {
	if !slices.ContainsFunc(fn.Sorted(), func(in *instance) bool { return in.relief.replaced }) {
		return allowed
	}
	troubled := fn.troubledNodes()
	return without(allowed, nodes, func(name string) bool { return troubled[name] })
}

// without returns the allowed nodes (nil for all) that are not out. It returns allowed itself if none
// would be left. It compares no nodes with each other: there may be thousands, at every look.
func without(allowed []string, nodes []cluster.Node, out func(name string) bool) (left []string) {
	if allowed == nil {
		for i := range nodes {
			if name := nodes[i].Name; !out(name) {
				left = append(left, name)
			}
		}
		return left
	}
	for _, name := range allowed {
		if !out(name) {
			left = append(left, name)
		}
	}
	if left == nil {
		return allowed
	}
	return left
}

// Mover moves an instance to other cores of its node. moved is false if there are none.
type Mover func(ctx context.Context, id cluster.InstanceID) (moved bool, err error)
