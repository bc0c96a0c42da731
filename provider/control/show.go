package control

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/scaling"
)

// Description is all that there is to say of a function.
type Description struct {
	// Instances are those that exist and are to stay; Ready counts those that
	// serve.
	Instances []cluster.Instance
	Ready     int
	// Cold counts the requests that found no ready instance.
	Cold uint64
	// Wanted is the number of instances that are kept even without load.
	Wanted uint64
	// Measured says that the model's times are known, measured or predicted.
	Measured bool
	// Problem is why the function, or the latest deployment of it, cannot be
	// served as it should, "" if it can.
	Problem string
}

// Describe tells what runs of a function; false if it is not deployed.
func (c *Controller) Describe(name string) (Description, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fn, ok := c.functions[name]
	if !ok {
		return Description{}, false
	}
	d := Description{Problem: fn.problem(), Cold: c.stats(fn).Cold, Wanted: fn.replicas, Measured: fn.profile != nil}
	for _, in := range fn.sorted() {
		if in.retiring {
			continue
		}
		d.Instances = append(d.Instances, in.Instance)
		if in.State == cluster.Ready {
			d.Ready++
		}
	}
	return d, true
}

// problem is why the function, or the latest deployment of it, cannot be served as
// it should, "" if it can.
func (fn *function) problem() string {
	why := cmp.Or(fn.failed, fn.failures.Why, fn.plan.Slow, fn.unplaced, fn.ineligible)
	if why != "" && fn.earlier() {
		return provider.Before(why)
	}
	return why
}

// earlier reports whether what was deployed before is served: the latest cannot be, or
// none of its instances is ready, and others are.
func (fn *function) earlier() bool {
	if fn.failed != "" {
		return fn.profile != nil
	}
	others := false
	for _, in := range fn.instances {
		if in.there() && in.Revision == fn.Revision {
			return false
		}
		others = others || in.there()
	}
	return others
}

// Status implements [provider.Controller]. The replicas are those that exist or
// are to be kept, whichever are more: a function at zero shows 0, and the stock
// gateway, told not to scale from zero itself, passes its requests on.
func (c *Controller) Status(name string) (provider.Status, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fn, ok := c.functions[name]
	if !ok {
		return provider.Status{}, false
	}
	s := provider.Status{Problem: fn.problem()}
	for _, in := range fn.instances {
		s.Usage = s.Usage.Add(in.usage)
		if !in.retiring {
			s.Replicas++
		}
		if in.there() { // A parked one, too: it answers as soon.
			s.AvailableReplicas++
		}
	}
	s.Replicas = max(s.Replicas, fn.replicas)
	return s, true
}

// warnPause is the least time between two warnings of a function that it cannot have
// what it needs: the explanation changes with every pass, as the load in it does.
const warnPause = 30 * time.Second

// explain keeps, per function, why it cannot have what it needs, logs it when
// it changes, now and then, and tells it to the requests that wait.
func (c *Controller) explain(now time.Time, plan scaling.Plan) {
	unplaced := map[string]string{}
	for _, u := range plan.Unplaced {
		unplaced[u.Function] = u.Explanation
	}
	for name, fn := range c.functions {
		// Without a profile, and in the pause after a crash, the engine is
		// given no configs, and its explanation tells nothing.
		why := unplaced[name]
		if why != "" {
			why = cmp.Or(fn.ineligible, why)
		}
		if why != fn.unplaced && fn.profile != nil && !fn.failures.Pausing(now) {
			fn.unplaced = why
			if why != "" && now.Sub(fn.warned) >= warnPause {
				fn.warned = now
				c.options.Logger.Warn().Str("function", name).Str("why", why).Msg("the function cannot have all the instances that it needs")
			}
		}
		fn.tell(now)
	}
}

// tell lets the dispatcher know what to answer where there is no instance.
func (fn *function) tell(now time.Time) {
	if a := fn.advise(now); a != fn.announced {
		fn.announced = a
		fn.dispatcher.SetProblem(a.problem, a.refuse)
	}
}

// advice is what a dispatcher is told of a function without ready instances.
type advice struct {
	problem string
	refuse  bool
}

// advise says what requests that find no ready instance are to be told, and
// whether it is of any use to hold them.
func (fn *function) advise(now time.Time) advice {
	switch {
	case fn.profile == nil:
		return advice{fn.failed, fn.failed != ""}
	case fn.failures.Why != "":
		return advice{fn.failures.Why, fn.failures.Hopeless(now)}
	}
	return advice{problem: fn.unplaced}
}

// record shows what runs in the metrics, where it has changed.
func (c *Controller) record(nodes []cluster.Node) {
	for _, n := range nodes {
		if c.shown[n.Name] != n {
			c.shown[n.Name] = n
			c.options.Metrics.SetNode(n)
		}
	}
	for _, fn := range c.functions {
		if len(fn.instances) > 0 || fn.held != (cluster.Resources{}) || !fn.recorded {
			fn.record(c.led || !c.several())
		}
	}
}

// record shows what runs of the function; of several replicas only the leader
// shows it, or all would be counted several times.
func (fn *function) record(leading bool) {
	counts := map[string]int{}
	for config := range fn.shown {
		counts[config] = 0
	}
	var held cluster.Resources
	parked := 0
	for _, in := range fn.instances {
		if !leading {
			break
		}
		held = held.Add(in.holds())
		switch {
		case in.serves():
			counts[in.config]++
		case in.Parked:
			parked++
		}
	}
	if held != fn.held || !fn.recorded {
		fn.held, fn.recorded = held, true
		fn.metrics.SetAllocated(held)
		fn.metrics.SetParked(parked)
	}
	if len(fn.instances) == 0 || !leading {
		fn.metrics.SetUsed(cluster.Resources{})
	}
	for config, n := range counts {
		if n != fn.shown[config] {
			fn.metrics.SetInstances(config, n)
		}
		if n == 0 {
			delete(counts, config)
		}
	}
	if !maps.Equal(counts, fn.shown) {
		fn.recordRatios()
	}
	fn.shown = counts
}

// sample reads in the background what the instances use, unless the last
// reading still goes on.
func (c *Controller) sample() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keeper.Read(&c.mu, slices.Collect(maps.Keys(c.instances)), func(used map[cluster.InstanceID]cluster.Resources) {
		sums := map[*function]cluster.Resources{}
		for id, in := range c.instances {
			in.usage = used[id]
			sums[in.function] = sums[in.function].Add(in.usage)
		}
		if !c.leading() {
			return
		}
		for fn, sum := range sums {
			fn.metrics.SetUsed(sum)
		}
	})
}
