package deployments

import (
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/forward"
	"github.com/faas-infer/faas-infer/provider/keeper"
	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/provider/peer"
	"github.com/faas-infer/faas-infer/scaling/replica"
)

// function is a deployed function with everything that runs for it here.
type function struct {
	*provider.Function
	controller *Controller
	manifest   *Manifest
	// hash is the manifest's, or that of the Deployment that was found made for
	// the same revision where the manifest could not be made again.
	hash      string
	forwarder *forward.Forwarder
	metrics   *metrics.FunctionMetrics
	// readyPath is where instances are asked whether they are ready; slowly: only
	// as the kubelet does.
	readyPath string
	slowly    bool

	replicas *replica.Scaler
	// led: this replica led at its last look at the function, so that replicas is
	// what holds.
	led bool
	// wish is the number that the scale route or the deployment gave last, asked
	// when that was.
	wish  uint64
	asked time.Time
	// arrivals are all requests that this replica has heard of, counted those of
	// each replica ("" is this one) that have been added up in it.
	arrivals uint64
	counted  map[string]uint64
	// seen are the arrivals at the last look.
	seen uint64

	// applying: a change is on its way to the API server; failures are those of the
	// latest ones.
	applying bool
	failures keeper.Failures

	notice keeper.Notice
	// shown and used are what the metrics hold.
	shown int
	used  cluster.Resources
}

// config is what each instance holds of its node, in the words of all backends.
func (fn *function) config() cluster.Config {
	return cluster.Config{Batch: 1, Resources: fn.Inference.Requests}
}

func (c *Controller) newFunction(now time.Time, f *provider.Function) *function {
	fn := &function{Function: f, controller: c, metrics: c.options.Metrics.Function(f.Name), wish: f.Replicas, counted: map[string]uint64{"": 0}, shown: -1}
	name := f.Name
	fn.forwarder = forward.New(forward.Options{
		ColdWait: c.options.ColdWait, QueueLimit: c.options.QueueLimit, BodyIdle: c.options.BodyTimeout, Dial: c.options.Dial, Recorder: fn.metrics,
		OnCold: c.cold,
		OnLost: func(id cluster.InstanceID, cause error) { c.lost(name, id, cause) },
	})
	// A running Deployment goes on, unless it is that of an earlier function of this
	// name.
	n := int(f.Replicas)
	if d, ok := c.deployed[name]; ok && !d.leaving {
		if o, there := c.options.Functions(name); there && o.UID == d.owner {
			n = d.replicas
		}
	}
	fn.replicas, fn.led = replica.New(now, keeper.ScaleSettings(f.Inference), n), c.leading()
	return fn
}

// cold is what a forwarder calls when a request finds no instance.
func (c *Controller) cold() {
	c.Wake()
	if c.options.Peers != nil && !c.leading() {
		c.options.Peers.Wake()
	}
}

// change puts a later deployment in the place of the present one.
func (fn *function) change(now time.Time, f *provider.Function, load replica.Load) {
	fn.Function = f
	fn.replicas.Configure(keeper.ScaleSettings(f.Inference))
	fn.want(now, f.Replicas, load)
	// An earlier problem need not be one any more.
	fn.failures = keeper.Failures{}
}

// want takes a number that was given, unless it was given before.
func (fn *function) want(now time.Time, n uint64, load replica.Load) {
	if n != fn.wish {
		fn.wish, fn.asked = n, now
		fn.replicas.Set(now, int(n), load)
	}
}

// load adds up what was asked of the function, at this replica and at the others.
func (fn *function) load(peers []peer.Load) replica.Load {
	own := fn.forwarder.Stats()
	fn.count("", own.Arrivals)
	load := replica.Load{InFlight: own.InFlight, Waiting: own.Waiting}
	for _, p := range peers {
		of := p.Functions[fn.Name]
		fn.count(p.Boot, of.Arrivals)
		load.InFlight += of.InFlight
		load.Waiting += of.Waiting
	}
	load.Arrivals = fn.arrivals
	return load
}

// count adds what has come at one replica since the last look. What had come when
// it was heard of for the first time is past.
func (fn *function) count(boot string, now uint64) {
	before, known := fn.counted[boot]
	if known && now > before {
		fn.arrivals += now - before
	}
	fn.counted[boot] = now
}

// Loads is what this replica has seen of its functions, for the others.
func (c *Controller) Loads() map[string]peer.FunctionLoad {
	c.mu.Lock()
	defer c.mu.Unlock()
	loads := map[string]peer.FunctionLoad{}
	for name, fn := range c.functions {
		s := fn.forwarder.Stats()
		if s.Arrivals > 0 {
			loads[name] = peer.FunctionLoad{Arrivals: s.Arrivals, Cold: s.Cold, Waiting: s.Waiting, InFlight: s.InFlight}
		}
	}
	return loads
}

// peers is what the other replicas have seen.
func (c *Controller) peers() []peer.Load {
	if c.options.Peers == nil {
		return nil
	}
	return c.options.Peers.Loads()
}
