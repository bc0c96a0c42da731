package control

import (
	"cmp"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/variant"
)

// onlyModel is the name under which a function's only model is shown.
const onlyModel = "model"

// title is the name under which the artefact is shown.
func (a *artefact) title() string { return cmp.Or(a.Name, onlyModel) }

var _ provider.VariantController = (*Controller)(nil)

// Variants lists what the function's instances may load, by name. It returns false if the
// function is not deployed.
func (c *Controller) Variants(name string) ([]provider.Variant, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fn, ok := c.functions[name]
	if !ok {
		return nil, false
	}
	all := make([]provider.Variant, 0, len(fn.artefacts))
	for _, a := range fn.artefacts {
		all = append(all, fn.variant(a))
	}
	slices.SortFunc(all, func(a, b provider.Variant) int { return cmp.Compare(a.Name, b.Name) })
	return all, true
}

// variant describes one artefact.
func (fn *function) variant(a *artefact) provider.Variant {
	v := provider.Variant{Name: a.title(), Model: a.of, Accuracy: a.accuracy, Nodes: []provider.VariantNode{}, LoadMS: milliseconds(a.loading)}
	worst, at := variant.Inactive, map[string]variant.State{}
	var largest *instance
	var held cluster.Sum
	for _, in := range fn.Sorted() {
		if in.own() != a || in.Retiring {
			continue
		}
		state := in.follower.State()
		places := in.Nodes
		if len(places) == 0 {
			places = []string{in.Node}
		}
		for _, place := range slices.Compact(slices.Sorted(slices.Values(places))) {
			i := slices.IndexFunc(v.Nodes, func(n provider.VariantNode) bool { return n.Node == place })
			if i < 0 {
				i, v.Nodes = len(v.Nodes), append(v.Nodes, provider.VariantNode{Node: place})
			}
			at[place] = max(at[place], state)
			v.Nodes[i].State = at[place].String()
			v.Nodes[i].Instances++
		}
		worst = max(worst, state)
		v.Instances++
		held.Hold(in.Node, in.Holds())
		if largest == nil || in.Config.CPU > largest.Config.CPU {
			largest = in
		}
	}
	slices.SortFunc(v.Nodes, func(a, b provider.VariantNode) int { return cmp.Compare(a.Node, b.Node) })
	v.State, v.Holds = worst.String(), resources(held.Resources)
	if best, ok := fn.example(a, largest); ok {
		v.Config, v.Price = best.Config.String(), resources(best.Config.Resources)
		v.RPS = fn.rate(best)
		if one := a.table(a.lead, 1, capacity.ShareOf(best.Config)); len(one) > 0 {
			v.LatencyMS = milliseconds(one[0])
		}
	}
	return v
}

// example returns the config by which an artefact is described: that of an instance if there
// is one, otherwise the candidate with the highest rate per millicore.
func (fn *function) example(a *artefact, in *instance) (best capacity.Candidate, ok bool) {
	if in != nil {
		best.Config, best.Exec = in.Config, in.exec
		best.Config.Batch = in.batch
		return best, true
	}
	worth := func(c capacity.Candidate) float64 { return fn.rate(c) / float64(max(1, c.Config.CPU)) }
	for _, c := range a.candidates {
		if c.Exec <= fn.Inference.SLO && (!ok || worth(c) > worth(best)) {
			best, ok = c, true
		}
	}
	return best, ok
}

// rate is the number of requests per second that a config serves (r_up).
func (fn *function) rate(c capacity.Candidate) float64 {
	return capacity.BoundsOf(c.Config, c.Exec, fn.Inference.SLO, capacity.Exact).Up
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func resources(r cluster.Resources) provider.VariantResources {
	return provider.VariantResources{CPU: r.CPU, GPU: r.GPU, Memory: r.Memory}
}

// inState is a variant and a state of instances.
type inState struct{ variant, state string }

// recordStates sets the metric of instances by variant and state. Of several replicas only
// the leader shows them.
func (fn *function) recordStates(leading bool) {
	counts := map[inState]int{}
	for _, in := range fn.Instances {
		if a := in.own(); leading && a != nil && in.loaded() {
			counts[inState{a.title(), in.follower.State().String()}]++
		}
	}
	for was := range fn.states {
		if counts[was] == 0 {
			fn.Metrics.SetVariantInstances(was.variant, was.state, 0)
		}
	}
	for is, n := range counts {
		if fn.states[is] != n {
			fn.Metrics.SetVariantInstances(is.variant, is.state, n)
		}
	}
	fn.states = counts
}
