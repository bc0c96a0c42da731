package control

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// This file holds what a controller does for models that are cut over several instances
// (Gillis): each way to cut a model is an artefact in addition to the whole one, and the engine chooses
// among them as among variants.

// isCut reports whether some of the models are cut.
func isCut(models []Model) bool {
	return slices.ContainsFunc(models, func(m Model) bool { return m.Plan != nil })
}

// quicker is how much quicker another artefact must be before it replaces the present one:
// times are corrected all the time, and each change starts other instances.
const quicker = 0.9

// quickest is the artefact and the share in millicores that answer one request fastest, for
// com.openfaas.infer.partition: latency. A share of 0 says that it was not looked for.
type quickest struct {
	artefact string
	cpu      int
	apart    bool
}

// among reduces candidates to those of the quickest artefact and share. It leaves out what the
// nodes could not hold even if they were empty. All shares of the artefact are left as long as
// the function has other instances, which may hold the room; but not while an instance with a smaller
// share is going to be raised, because a second one would take the room for that. For example one set
// with 2000m answers in half the time of two with 1000m each.
func (q *quickest) among(now time.Time, all []capacity.Candidate, nodes []cluster.Node, instances []*instance) []capacity.Candidate {
	fit := slices.DeleteFunc(slices.Clone(all), func(c capacity.Candidate) bool { return !holdable(c.Config, nodes) })
	if len(fit) == 0 {
		return all
	}
	best := capacity.Fastest(fit)
	own := slices.DeleteFunc(slices.Clone(fit), func(c capacity.Candidate) bool { return c.Artefact != q.artefact })
	if len(own) > 0 && best.Artefact != q.artefact {
		if now := capacity.Fastest(own); float64(best.Exec) >= quicker*float64(now.Exec) {
			best = now
		}
	}
	q.artefact, q.cpu, q.apart = best.Artefact, best.Config.CPU, best.Config.Apart
	full := !slices.ContainsFunc(instances, func(in *instance) bool { return !q.is(in) || in.Config.CPU != q.cpu }) || q.raises(now, nodes, instances)
	return slices.DeleteFunc(fit, func(c capacity.Candidate) bool {
		return c.Artefact != q.artefact || c.Config.Apart != q.apart || full && c.Config.CPU != q.cpu
	})
}

// is reports whether an instance has the quickest artefact, whatever its share.
func (q *quickest) is(in *instance) bool {
	return in.Artefact.Name == q.artefact && in.Config.Apart == q.apart
}

// raises reports whether an instance of the quickest artefact has a smaller share, and room for the
// quickest one now, or when the instances that it replaces have gone. It leaves out those whose quota
// could not be changed of late.
func (q *quickest) raises(now time.Time, nodes []cluster.Node, instances []*instance) bool {
	low := slices.DeleteFunc(slices.Clone(instances), func(in *instance) bool {
		there := in.serves() || in.State == cluster.Starting && !in.Retiring
		return !there || !q.is(in) || in.Config.CPU >= q.cpu || now.Before(in.resizeAfter)
	})
	if len(low) == 0 {
		return false
	}
	free := freeOf(nodes)
	for _, in := range instances {
		if !q.replaces(in) {
			continue
		}
		for node, share := range in.Shares() {
			free[node] = free[node].Add(share)
		}
	}
	return slices.ContainsFunc(low, func(in *instance) bool {
		_, fits := raised(in, q.cpu, free)
		return fits
	})
}

// freeOf is what nodes have free, by name.
func freeOf(nodes []cluster.Node) map[string]cluster.Resources {
	free := make(map[string]cluster.Resources, len(nodes))
	for _, n := range nodes {
		free[n.Name] = n.Free
	}
	return free
}

// raised is what is left of free if an instance has another CPU quota, and whether that fits.
func raised(in *instance, cpu int, free map[string]cluster.Resources) (left map[string]cluster.Resources, fits bool) {
	more := cluster.InstanceSpec{Node: in.Node, Nodes: in.Nodes, Config: in.Config}
	more.Config.Resources = cluster.Resources{CPU: cpu - in.Config.CPU}
	left, fits = maps.Clone(free), true
	for node, share := range more.Shares() { // A node with several members comes several times.
		fits = fits && share.Fits(left[node])
		left[node] = left[node].Sub(share)
	}
	return left, fits
}

// of reduces candidates of a function to those of the artefact and share that answer fastest the requests
// that ask nothing. It leaves those of artefacts that others need.
func (q *quickest) of(now time.Time, fn *function, all []capacity.Candidate, nodes []cluster.Node) []capacity.Candidate {
	var own, rest []capacity.Candidate
	for _, x := range all {
		if x.Accuracy >= fn.Inference.Accuracy {
			own = append(own, x)
		} else {
			rest = append(rest, x)
		}
	}
	if len(own) == 0 {
		*q = quickest{}
		return all
	}
	fastest := q.among(now, own, nodes, fn.Sorted())
	for _, x := range append(own, rest...) {
		if q.lacks(fn, x.Artefact) {
			fastest = append(fastest, x)
		}
	}
	return fastest
}

// lacks reports whether some requests of late may be answered by an artefact, and not by the
// quickest: they ask for a model, or for more accuracy.
func (q *quickest) lacks(fn *function, name string) bool {
	for _, l := range fn.classing.loads {
		if l.active(fn.classing.at) && slices.Contains(l.artefacts, name) && !slices.Contains(l.artefacts, q.artefact) {
			return true
		}
	}
	return false
}

// replaces reports whether an instance has to make room for the quickest.
func (q *quickest) replaces(in *instance) bool {
	return q.cpu > 0 && !q.is(in) && !q.lacks(in.function, in.Artefact.Name)
}

// raiseAll gives the instances of functions that shall answer as fast as possible the share with
// which they do, as soon as their nodes have room: while instances of another artefact hold it,
// they start with less. It sets the free resources of nodes: the plan has taken some.
func (c *driver) raiseAll(nodes []cluster.Node) {
	var free map[string]cluster.Resources
	for _, fn := range c.functions {
		if fn.quick.cpu == 0 {
			continue
		}
		if free == nil {
			c.keeper.Free(nodes)
			free = freeOf(nodes)
		}
		free = c.raise(fn, free)
	}
}

// raise is raiseAll for a function. It returns what is left of the nodes' free resources.
func (c *driver) raise(fn *function, free map[string]cluster.Resources) map[string]cluster.Resources {
	for _, in := range fn.Sorted() {
		if !in.serves() || !fn.quick.is(in) || in.Config.CPU >= fn.quick.cpu {
			continue
		}
		next := in.Config
		next.CPU = fn.quick.cpu
		reason := scaling.Reason{Why: "the function asks for the shortest times, and its node has room"}
		left, fits := raised(in, next.CPU, free)
		if !fits {
			continue
		}
		if c.resize(in, scaling.Resize{Function: fn.Name, ID: in.ID, Config: next, Reason: reason}); in.Config.CPU == next.CPU {
			free = left
		}
	}
	return free
}

// holdable reports whether the nodes could hold an instance if they were empty.
func holdable(c cluster.Config, nodes []cluster.Node) bool {
	each, n := c.Each(), c.Members()
	if c.Together() {
		each, n = c.Resources, 1
	}
	for _, node := range nodes {
		for left := node.Total; each.Fits(left) && n > 0; n-- {
			left = left.Sub(each)
		}
	}
	return n == 0
}

// beingPlanned says that a function has no plan yet.
const beingPlanned = "it is being planned how to cut the model, with CPU time that nothing else needs"

// planText describes how a function's models are cut, and whether that is being planned; "" if they are
// not cut.
func planText(artefacts []*artefact, planning bool) string {
	var all []string
	for _, a := range artefacts {
		if a.cut != nil {
			all = append(all, a.describeCut())
		}
	}
	slices.Sort(all)
	if planning {
		all = append(all, beingPlanned)
	}
	return strings.Join(all, "; ")
}

// describeCut is for example "parts-2: 2 instances with 271 MiB each, layers 0–12 2x1 on 0 1,
// layers 13–20 whole on 0, one request predicted 94ms, seen 101ms".
func (a *artefact) describeCut() string {
	n := a.cut.Members
	share := profiler.Share{CPU: 1000 * slices.Max(append(a.profile.Threads(), a.profile.Computing()))}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d instances with %d MiB each", cmp.Or(a.Name, onlyModel), n, a.profile.Memory/int64(n)>>20)
	for _, r := range a.cut.Rounds {
		var on []string
		for _, member := range r.On {
			on = append(on, fmt.Sprint(member))
		}
		fmt.Fprintf(&b, ", layers %d–%d %s on %s", r.First, r.End-1, r.Cut, strings.Join(on, " "))
	}
	if predicted, ok := a.profile.ExecTime(1, share); ok {
		fmt.Fprintf(&b, ", one request predicted %v", predicted.Round(time.Millisecond/10))
	}
	if ratio, ok := a.lead.times.Ratio(share); ok {
		if predicted, ok := a.profile.ExecTime(1, share); ok {
			fmt.Fprintf(&b, ", seen %v", time.Duration(ratio*float64(predicted)).Round(time.Millisecond/10))
		}
	}
	return b.String()
}
