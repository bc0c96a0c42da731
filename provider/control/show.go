package control

import (
	"cmp"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/keeper"
	"github.com/faas-infer/faas-infer/scaling"
)

// Describe tells what runs of a function; false if it is not deployed.
func (c *Controller) Describe(name string) (keeper.Description, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fn, ok := c.functions[name]
	if !ok {
		return keeper.Description{}, false
	}
	d := fn.Describe()
	d.Problem, d.Cold, d.Wanted, d.Measured = fn.problem(), c.stats(fn).Cold, fn.replicas, fn.measured()
	return d, true
}

// problem is why the function, or the latest deployment of it, cannot be served as
// it should, "" if it can.
func (fn *function) problem() string {
	why := cmp.Or(fn.failed, fn.Failures.Why, fn.slow(), fn.Unplaced, fn.ineligible)
	if why != "" && fn.earlier() {
		return provider.Before(why)
	}
	return why
}

// earlier reports whether what was deployed before is served: the latest cannot be, or
// none of its instances is ready, and others are.
func (fn *function) earlier() bool {
	if fn.failed != "" {
		return fn.measured()
	}
	others := false
	for _, in := range fn.Instances {
		if in.There() && in.Revision == fn.Revision {
			return false
		}
		others = others || in.There()
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
	s := provider.Status{Problem: fn.problem(), Usage: fn.Usage()}
	for _, in := range fn.Instances {
		if !in.Retiring {
			s.Replicas++
		}
		if in.There() { // A parked one, too: it answers as soon.
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
		if why != fn.Unplaced && fn.measured() && !fn.Failures.Pausing(now) {
			fn.Unplaced = why
			if why != "" && now.Sub(fn.warned) >= warnPause {
				fn.warned = now
				fn.log.Warn().Str("why", why).Msg("the function cannot have all the instances that it needs")
			}
		}
		fn.tell(now)
	}
}

// tell lets the dispatcher know what to answer where there is no instance.
func (fn *function) tell(now time.Time) {
	if !fn.measured() {
		fn.Announce(fn.failed, fn.failed != "")
		return
	}
	fn.Tell(now)
}

// record shows what runs in the metrics, where it has changed; of several replicas only
// the leader shows functions.
func (c *Controller) record(nodes []cluster.Node) {
	for _, n := range nodes {
		if c.shown[n.Name] != n {
			c.shown[n.Name] = n
			c.options.Metrics.SetNode(n)
		}
	}
	for _, fn := range c.functions {
		fn.record(c.options.Replica.Led())
	}
}

// record shows what runs of the function.
func (fn *function) record(leading bool) {
	parked := 0
	if fn.Record(leading, func(in *instance) (string, bool) { return in.config, in.serves() }) {
		fn.recordRatios()
	}
	for _, in := range fn.Instances {
		if leading && in.Parked && !in.serves() {
			parked++
		}
	}
	if parked != fn.parked {
		fn.parked = parked
		fn.Metrics.SetParked(parked)
	}
}
