package processes

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider"
)

// Description is all that there is to say of a function.
type Description struct {
	// Instances are those that exist and are to stay; Ready counts those that
	// serve.
	Instances []cluster.Instance
	Ready     int
	// Cold counts the requests that found no ready instance.
	Cold uint64
	// Wanted is the number of instances that there are to be.
	Wanted uint64
	// Crash is why its instances do not live, Unplaced why it has too few; ""
	// where there is nothing to say.
	Crash, Unplaced string
	// Earlier: what is ready is of an earlier deployment.
	Earlier bool
}

// Problem is why the function cannot be served as it should, "" if it can.
func (d Description) Problem() string {
	why := cmp.Or(d.Crash, d.Unplaced)
	if why != "" && d.Earlier {
		return provider.Before(why)
	}
	return why
}

// Describe tells what runs of a function; false if it is not deployed.
func (c *Controller) Describe(name string) (Description, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fn, ok := c.functions[name]
	if !ok {
		return Description{}, false
	}
	d := fn.describe()
	for _, in := range fn.instances {
		if in.retiring {
			continue
		}
		d.Instances = append(d.Instances, in.Instance)
		if in.State == cluster.Ready {
			d.Ready++
		}
	}
	slices.SortFunc(d.Instances, func(a, b cluster.Instance) int { return cmp.Compare(a.ID, b.ID) })
	return d, true
}

// describe is all but the instances.
func (fn *function) describe() Description {
	d := Description{Crash: fn.crash, Unplaced: fn.unplaced, Cold: fn.forwarder.Stats().Cold, Wanted: uint64(fn.replicas.Wanted())}
	for _, in := range fn.instances {
		if in.serves() && in.current() {
			d.Earlier = false
			break
		}
		d.Earlier = d.Earlier || in.serves()
	}
	return d
}

// Status implements [provider.Controller]. Replicas is the number that there is
// to be: right after a deployment its minimum, right after the scale route what
// that has set.
func (c *Controller) Status(name string) (provider.Status, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fn, ok := c.functions[name]
	if !ok {
		return provider.Status{}, false
	}
	d := fn.describe()
	s := provider.Status{Replicas: d.Wanted, Problem: d.Problem()}
	for _, in := range fn.instances {
		s.Usage = s.Usage.Add(in.usage)
		if in.serves() && s.AvailableReplicas < s.Replicas {
			s.AvailableReplicas++
		}
	}
	return s, true
}

// tell lets the forwarder know what to answer where there is no instance.
func (fn *function) tell(now time.Time) {
	if a := fn.advise(now); a != fn.announced {
		fn.announced = a
		fn.forwarder.SetProblem(a.problem, a.refuse)
	}
}

// advice is what a forwarder is told of a function without ready instances.
type advice struct {
	problem string
	refuse  bool
}

// hopelessFailures is after how many instances in a row that did not live a
// request is no longer held until the next one is tried.
const hopelessFailures = 3

// advise says what requests that find no ready instance are to be told, and
// whether it is of any use to hold them.
func (fn *function) advise(now time.Time) advice {
	if fn.crash != "" {
		return advice{fn.crash, fn.failures >= hopelessFailures && now.Before(fn.notBefore)}
	}
	return advice{problem: fn.unplaced}
}

// record shows what runs in the metrics, where it has changed.
func (fn *function) record() {
	if len(fn.instances) == 0 && fn.held == (cluster.Resources{}) && fn.shown == 0 && fn.recorded {
		return
	}
	ready := 0
	var held cluster.Resources
	for _, in := range fn.instances {
		held = held.Add(in.Config.Resources)
		if in.serves() {
			ready++
		}
	}
	if held != fn.held || !fn.recorded {
		fn.held, fn.recorded = held, true
		fn.metrics.SetAllocated(held)
	}
	if len(fn.instances) == 0 {
		fn.metrics.SetUsed(cluster.Resources{})
	}
	if label := fn.config().String(); ready != fn.shown || label != fn.label {
		fn.metrics.SetInstances(fn.label, 0)
		fn.metrics.SetInstances(label, ready)
		fn.shown, fn.label = ready, label
	}
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
		for fn, sum := range sums {
			fn.metrics.SetUsed(sum)
		}
	})
}
