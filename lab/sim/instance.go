package sim

import (
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling"
)

// instance is one instance of a function.
type instance struct {
	cluster.Instance
	fn *function
	// node is the index of its node. nodes are those of a set's members, by member, if they are
	// on several; node is then the first one's.
	node   int
	nodes  []int
	tables *tables
	// exec and mean are the scheduler's times of a full batch. timeout is the batch's,
	// rate the r_i that the batching policy has.
	exec, mean, timeout time.Duration
	rate                float64
	// slot is its index in run.slots. number tells it from earlier instances in the slot.
	slot, number int32
	// awaits is the number of instances that must leave before it begins. blocks are the
	// instances that wait for this one.
	awaits int
	blocks []*instance
	// holds is what it holds of its node. claims is what the scheduler must not plan
	// with; it is more than holds while the instance waits for others to leave.
	holds, claims cluster.Resources
	claimed       bool
	// away is set while it gets no batches: it is parked or on its way back.
	away bool
	// serving has its use once it has loaded.
	serving Ready
	// begun is set once it holds its resources, loaded once it has been ready. heldSince
	// and readySince are the times until which the result has counted it, used its use
	// until then.
	begun, loaded         bool
	heldSince, readySince time.Duration
	used                  Use
}

// start creates an instance. It begins when the instances in s.After have left.
func (r *run) start(s scaling.Start) {
	fn := r.find(s.Function)
	node, ok := r.node[s.Node]
	nodes := make([]int, len(s.Nodes))
	for k, name := range s.Nodes {
		var known bool
		nodes[k], known = r.node[name]
		ok = ok && known
	}
	if fn == nil || !ok {
		r.err = fmt.Errorf("the plan starts an instance of %q on %q: there is no such function or node", s.Function, append([]string{s.Node}, s.Nodes...))
		return
	}
	tables := r.times(fn, s.Artefact, s.Config)
	if tables == nil {
		r.err = fmt.Errorf("the plan starts %v of %s: the model has no time for it", s.Config, s.Function)
		return
	}
	r.started++
	in := &instance{
		Instance: cluster.Instance{InstanceSpec: cluster.InstanceSpec{
			ID: r.name(fn), Function: fn.Name, Revision: s.Revision, Node: s.Node, Nodes: s.Nodes, Config: s.Config, Artefact: cluster.Artefact{Name: s.Artefact},
		}, State: cluster.Starting},
		fn: fn, node: node, nodes: nodes, tables: tables, exec: s.Exec, mean: s.Mean, timeout: s.Timeout, number: r.started,
	}
	if s.Device != "" {
		in.Devices = []string{s.Device}
	}
	if n := len(r.free); n > 0 {
		in.slot, r.free = r.free[n-1], r.free[:n-1]
	} else {
		in.slot = int32(len(r.slots))
		r.slots = append(r.slots, nil)
	}
	r.slots[in.slot], r.instances[in.ID] = in, in
	fn.instances = append(fn.instances, in)
	r.claim(in, s.Config.Resources)
	r.result.PeakInstances = max(r.result.PeakInstances, len(r.instances))
	if r.window.Has(r.now) {
		r.result.Starts++
		fn.result.Starts++
		tables.result.Starts++
	}
	if r.awaits(in, s.After) == 0 {
		r.begin(in)
	}
}

// awaits lets an instance wait for others to leave, and returns their number.
func (r *run) awaits(in *instance, others []cluster.InstanceID) int {
	for _, id := range others {
		if before, ok := r.instances[id]; ok {
			in.awaits++
			before.blocks = append(before.blocks, in)
		}
	}
	return in.awaits
}

// serves reports whether it takes batches.
func (in *instance) serves() bool { return in.State == cluster.Ready && !in.away }

// name returns the ID of the next instance of a function. IDs are in the order of starts.
func (r *run) name(fn *function) cluster.InstanceID {
	number := strconv.Itoa(int(r.started))
	return cluster.InstanceID(fn.Name + "-" + strings.Repeat("0", max(0, 8-len(number))) + number)
}

// find returns the function of a name, nil if there is none.
func (r *run) find(name string) *function {
	i := slices.IndexFunc(r.functions, func(fn *function) bool { return fn.Name == name })
	if i < 0 {
		return nil
	}
	return r.functions[i]
}

// begin lets an instance take its resources and load.
func (r *run) begin(in *instance) {
	in.begun, in.heldSince = true, r.now
	on := r.now
	for node := range in.over(in.Config.Resources) {
		r.machines.Begin(r.now, node, cluster.Resources{})
		on = max(on, r.booted(node))
	}
	r.hold(in, in.Config.Resources)
	r.events.Plan(on+in.fn.loading(in.Artefact.Name), ready, in.slot, in.number)
}

// over lists an instance's nodes and what it takes of each, if it takes of in all: for a set over
// several nodes, an equal part for each member.
func (in *instance) over(of cluster.Resources) iter.Seq2[int, cluster.Resources] {
	return func(yield func(int, cluster.Resources) bool) {
		if len(in.nodes) == 0 {
			yield(in.node, of)
			return
		}
		part := cluster.Config{Parts: len(in.nodes), Resources: of}.Each()
		for _, node := range in.nodes {
			if !yield(node, part) {
				return
			}
		}
	}
}

// booted returns when the machine of a node is on. It boots now if it is off.
func (r *run) booted(node int) time.Duration {
	name := r.nodes[node].Name
	on, known := r.on[name]
	if !known {
		on = r.now + r.Boots[name]
		r.on[name] = on
	}
	return max(on, r.now)
}

// claim sets what an instance claims of its nodes' free resources.
func (r *run) claim(in *instance, of cluster.Resources) {
	r.unclaim(in)
	for node, part := range in.over(of) {
		r.nodes[node].Hold(part, in.Device())
	}
	in.claims, in.claimed = of, true
}

// unclaim ends an instance's claim.
func (r *run) unclaim(in *instance) {
	if !in.claimed {
		return
	}
	for node, was := range in.over(in.claims) {
		r.nodes[node].Drop(was, in.Device())
	}
	in.claims, in.claimed = cluster.Resources{}, false
}

// hold sets what an instance holds of its nodes from now on. The scheduler must not give
// away more than a node has; if it does, the run ends with an error.
func (r *run) hold(in *instance, to cluster.Resources) {
	for node, was := range in.over(in.holds) {
		r.used[node].Drop(was, "")
	}
	for node, part := range in.over(to) {
		n := &r.used[node]
		if n.Hold(part, ""); r.err == nil && !(cluster.Resources{}).Fits(n.Free) {
			r.err = fmt.Errorf("the plan gives node %s more than it has: %+v of %+v", n.Name, n.Total.Sub(n.Free), n.Total)
		}
	}
	if in.Device() != "" {
		r.share(in, to)
	}
	in.fn.held = in.fn.held.Sub(in.holds).Add(to)
	r.machines.Change(r.now, in.holds, to)
	in.holds = to
}

// share is hold for the device of which an instance has a share.
func (r *run) share(in *instance, to cluster.Resources) {
	held := r.shares[in.Device()].Sub(in.holds.OnDevice()).Add(to.OnDevice())
	r.shares[in.Device()] = held
	for _, d := range r.nodes[in.node].Devices {
		if d.UUID == in.Device() && r.err == nil && !held.Fits(d.Total) {
			r.err = fmt.Errorf("the plan gives GPU %s more than it has: %+v of %+v", d.UUID, held, d.Total)
		}
	}
}

// loaded makes a loaded instance ready.
func (r *run) loaded(in *instance) {
	if in.State != cluster.Starting {
		return
	}
	in.State, in.loaded, in.readySince = cluster.Ready, true, r.now
	in.fn.ready++
	r.up(in)
	r.wake()
}

// up lets a ready instance take batches, or passes its changes to the carrier.
func (r *run) up(in *instance) {
	config := in.Config
	config.Batch = len(in.tables.predicted)
	in.serving = in.fn.carrier.Up(r.now, Peer{
		Instance: batching.Instance{ID: in.ID, Config: config, Exec: in.tables.predicted, Rate: in.rate, Timeout: in.timeout},
		Truth:    in.tables.truth,
		Device:   r.device(in),
		Quota:    in.fn.quota(in.Config),
	})
}

// stop lets an instance leave after it has answered its batches.
func (r *run) stop(s scaling.Stop) {
	in, ok := r.instances[s.ID]
	if !ok || in.State == cluster.Stopping {
		return
	}
	if r.window.Has(r.now) {
		r.result.Stops++
	}
	if in.serves() {
		in.fn.ready--
	}
	in.State = cluster.Stopping
	if !in.loaded || in.fn.carrier.Down(r.now, in.ID) {
		r.gone(in)
	}
}

// gone removes an instance, frees its resources, and begins the instances that waited for
// it.
func (r *run) gone(in *instance) {
	r.settle(in)
	if in.begun {
		r.hold(in, cluster.Resources{})
		for node := range in.over(in.Config.Resources) {
			r.machines.End(r.now, node, cluster.Resources{})
		}
	}
	in.State = cluster.Exited
	in.fn.carrier.Forget(in.ID)
	in.fn.instances = slices.DeleteFunc(in.fn.instances, func(x *instance) bool { return x == in })
	r.unclaim(in)
	delete(r.instances, in.ID)
	r.slots[in.slot] = nil
	r.free = append(r.free, in.slot)
	for _, next := range in.blocks {
		switch next.awaits--; {
		case next.awaits > 0:
		case next.State == cluster.Starting:
			r.begin(next)
		case next.State == cluster.Ready:
			r.resume(next)
		}
	}
	r.wake()
}
