package deployments

import (
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/forward"
	"github.com/faas-infer/faas-infer/provider/keeper"
	"github.com/faas-infer/faas-infer/provider/peer"
	"github.com/faas-infer/faas-infer/scaling/replica"
)

// function is a deployed function with everything that this replica keeps for it.
type function struct {
	*provider.Function
	controller *Controller
	manifest   *Manifest
	// hash is the manifest's. If the manifest could not be made again, it is that of the
	// existing Deployment, which was made for the same revision.
	hash      string
	forwarder *forward.Forwarder
	// Service counts failed changes at the API server, and not those of instances, as its Failures.
	keeper.Service
	// readyPath is the path of the readiness probe. kubeletOnly: only the kubelet probes
	// starting instances.
	readyPath   string
	kubeletOnly bool
	// answering is the revision whose instances get requests, 0 if none did.
	answering uint64

	replicas keeper.Scaler
	// led: this replica led at its last look at the function, so replicas is up to date.
	led bool
	// arrivals counts the requests at all replicas that this one knows of. counted holds
	// the part of each replica's counter that is in arrivals already; "" is this replica.
	arrivals uint64
	counted  map[string]uint64

	// applying: a change at the API server is in progress.
	applying bool

	// shown and used are the values that the metrics show.
	shown int
	used  cluster.Resources
}

// config returns what each instance holds of its node.
func (fn *function) config() cluster.Config {
	return cluster.Config{Batch: 1, Resources: fn.Inference.Requests}
}

func (c *Controller) newFunction(now time.Time, f *provider.Function) *function {
	fn := &function{Function: f, controller: c, counted: map[string]uint64{"": 0}, shown: -1}
	name, recorder := f.Name, c.options.Metrics.Function(f.Name)
	fn.forwarder = forward.New(forward.Options{
		ColdWait: c.options.ColdWait, QueueLimit: c.options.QueueLimit, BodyIdle: c.options.BodyTimeout, Dial: c.options.Dial, Recorder: recorder,
		OnCold: c.cold,
		OnLost: func(id cluster.InstanceID, cause error) { c.lost(name, id, cause) },
	})
	fn.Service = keeper.Service{Dispatcher: fn.forwarder, Metrics: recorder}
	fn.forwarder.SetExecTimeout(forward.ExecTimeout(f.Deployment.EnvVars))
	// Keep the number of a running Deployment, unless it belongs to an earlier function of
	// this name.
	n := int(f.Replicas)
	if d, ok := c.deployed[name]; ok && !d.leaving {
		if o, there := c.options.Functions(name); there && o.UID == d.owner {
			n = d.replicas
		}
	}
	fn.replicas = keeper.Scaler{Scaler: replica.New(now, keeper.ScaleSettings(f.Inference), n), Wish: f.Replicas}
	fn.led = c.leading()
	return fn
}

// cold wakes the controller and the leader for a request without an instance. Forwarders call it.
func (c *Controller) cold() {
	c.Wake()
	if c.options.Peers != nil && !c.leading() {
		c.options.Peers.Wake()
	}
}

// change replaces the present deployment by a later one.
func (fn *function) change(now time.Time, f *provider.Function, load replica.Load) {
	fn.Function = f
	fn.forwarder.SetExecTimeout(forward.ExecTimeout(f.Deployment.EnvVars))
	fn.replicas.Deployed(now, f, load)
	// The new deployment may not have the earlier problem.
	fn.Failures = keeper.Failures{}
}

// load returns the function's load at all replicas.
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

// count adds to arrivals what came to one replica since the last look. It skips what came before
// this replica first heard of it.
func (fn *function) count(boot string, now uint64) {
	before, known := fn.counted[boot]
	if known && now > before {
		fn.arrivals += now - before
	}
	fn.counted[boot] = now
}

// Loads returns the loads of this replica's functions, for the other replicas.
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

// peers returns the loads of the other replicas.
func (c *Controller) peers() []peer.Load {
	if c.options.Peers == nil {
		return nil
	}
	return c.options.Peers.Loads()
}
