// Package control runs the functions that serve models: several times a second it asks the scaling engine what
// to start and what to retire, and carries that out through a keeper. The engine decides, not this package. No
// request passes through it: a request without a ready instance only wakes it. Begin with Controller.scale in
// look.go, the loop. function.go and artefact.go hold what a function has. Types that own what they need and
// share the controller's lock do the work. revisions.go (with prepare.go, improve.go, lesson.go, cut.go) prepares
// deployments, which deploy.go and check.go accept; trial.go and arrivals.go find times on GPUs. act.go carries
// out the engine's plan; handover.go takes instances over and decides which revision answers. learn.go, pace.go
// and steer.go correct times and capacity, interfere.go relieves instances that others slow down, pairs.go and
// tell.go serve instances with shadows, classes.go and ask.go sort requests by what they ask. replicas.go works
// with the provider's other replicas, nodes.go sizes the fleet, save.go stores what was learned, and show.go
// describes it all.
package control

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/coldstart"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/decisions"
	"github.com/faas-infer/faas-infer/provider/dispatch"
	"github.com/faas-infer/faas-infer/provider/keeper"
	"github.com/faas-infer/faas-infer/provider/latency"
	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/provider/peer"
	"github.com/faas-infer/faas-infer/provider/web"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/nodes"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// Bundles finds the models that a function's image names.
type Bundles interface {
	// Models returns the bundle and the models of a function, at least one: the file that
	// the deployment names, otherwise those of the bundle's manifest that the deployment
	// admits. It returns none if the model is too large for one instance, may be cut, and is
	// not yet. The bundle is a directory, or an image reference with the digest of the
	// content. With a digest, a function whose image has other content runs another model. An error
	// that names files of a bundle comes with the bundle.
	Models(ctx context.Context, f *provider.Function) (bundle string, models []Model, err error)
}

// Improver makes more models for functions beside those of their bundles, such as variants of these, or ways
// to cut them.
type Improver interface {
	// Wanted identifies what Improve makes of a bundle's models for a function's deployment, "" for
	// nothing.
	Wanted(f *provider.Function, bundle string) string
	// Improve takes minutes, or no time if everything is there. [Bundles] then knows it. Calls for models
	// with the same content share the work, so a call for a function's next revision begins before the
	// earlier one ends.
	Improve(ctx context.Context, f *provider.Function) error
}

// Secrets finds the secrets of functions.
type Secrets interface {
	// File returns the path of the file with a secret's value, or an error that
	// names the secret. It returns "" if instances get the value from elsewhere.
	File(namespace, secret string) (string, error)
	// Version returns a text that changes when the secret is replaced, "" if there is
	// no such secret.
	Version(namespace, secret string) string
}

// Options configure a controller.
type Options struct {
	Backend cluster.Backend
	// System decides what to start and stop. The simulator runs the same systems.
	System systems.System
	Cold   coldstart.Policy
	Models latency.Models
	// Devices may be nil: then no model runs on a GPU.
	Devices latency.Devices
	// Trials measure models on GPUs that this machine does not have; nil if nobody does.
	Trials Trials
	// Predict makes the controller predict the times of a model when it is deployed.
	// It measures a model that it cannot predict, or any model if Predict is false.
	Predict bool
	// Longest and LongestOn are those of [latency.Finder].
	Longest, LongestOn bool
	Profiles           latency.Profiles
	// Corrections may be nil: after a restart only the profiles are known then.
	Corrections latency.Corrections
	// Histories may be nil: a restart then loses what Cold has learned.
	Histories latency.Histories
	// MaxSaves is how many records Corrections and Histories take in a minute together, 0 for any
	// number. Without a limit each minute writes all that has changed.
	MaxSaves int
	Bundles  Bundles
	Secrets  Secrets
	Metrics  *metrics.Metrics
	Logger   zerolog.Logger
	// Decisions gets what the controller does, and why; nil for nothing.
	Decisions *decisions.Log
	// Backlog returns how many asynchronous requests of a function, by its full name, were stored and
	// not answered at a time of late. It is nil if there are none. It is called at every look, so it must be fast.
	Backlog func(function string) (requests int, at time.Time)
	// Policy is the default batching policy.
	Policy string
	// ColdWait is how long beyond its SLO a request without a ready instance may
	// wait. QueueLimit is the maximum number of waiting requests per function.
	ColdWait   time.Duration
	QueueLimit int
	// Tick is the time between two looks at the load. It is ten times as long while
	// no function has an instance or a request.
	Tick time.Duration
	// StopGrace is how long a retired instance may take to finish its requests, and
	// then again to exit.
	StopGrace time.Duration
	// OneMachine says that there will never be more nodes than now. Deployments that no node could
	// hold are then refused.
	OneMachine bool
	// Engine is the name that a profile must carry, Machine that of this machine
	// ([latency.Finder]).
	Engine, Machine string
	// EngineOn is the engine on GPUs, whose version may be another; "" for Engine's name and "cuda".
	EngineOn string
	// Pace converts profiles of other machines to this one; nil if there are none.
	Pace latency.Pace
	// Yardstick returns the [profiler.Profile.Yardstick] of a type of nodes ([cluster.Node.Type]),
	// or of this machine's for "", 0 if it is not known. It may be nil. It is called while the
	// controller is locked, so it must be fast.
	Yardstick func(kind string) float64
	// Bodies counts the instances' answers while they are read; nil for no bound.
	Bodies *web.BodyReader
	// Dial connects to an instance; the default is net.Dialer's DialContext.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Eligible lists the nodes on which a function's instances may start: nil for
	// all, or none and the reason why. Beside nodes, why says which others refuse them. It is called at every look, so it must be
	// fast. If Eligible itself is nil, every node is eligible.
	Eligible func(f *provider.Function) (nodes []string, why string)
	// Arriving says how much of its model each starting instance of a function has, "" if none is sent one. It is called
	// often; nil if instances find their models.
	Arriving func(function string) string
	// Unprepared says which nodes do not have a function's model ahead of its instances, and why, "" if there is nothing to
	// say. It is called often, and may be nil.
	Unprepared func(function string) string
	// Move moves an instance away from what interferes with it. It may be nil: such an
	// instance is then replaced by one on another node.
	Move Mover
	// Improver makes more models for functions that ask for that; nil if nobody does.
	Improver Improver
	// Cuttable returns the ways to cut a function's model that are known, or can be found in
	// the time that a deployment may take, fastest first, although the deployment does not
	// ask for it. If it is nil, refusals do not say whether that would help.
	Cuttable func(ctx context.Context, f *provider.Function) []Model
	// Mapped returns the size in bytes of the file that all instances of a prepared model on one node
	// map, 0 if each has its weights to itself. It is nil if none share any: then each instance counts
	// all of its memory.
	Mapped func(prepared string) int64
	// Shadows makes instances with shadows possible; nil if the program has none.
	Shadows NewShadows
	// CPU returns the share of its CPU that a node uses, and false if that is not known now:
	// best-effort requests then wait. If CPU itself is nil, the share follows from what
	// instances use and hold.
	CPU func(node string) (share float64, known bool)
	// NodesWanted, if not nil, is told every two seconds how many nodes there should be, while
	// this replica leads, and nil when it does not any more. It must not block.
	NodesWanted func([]nodes.Wanted)
	// Replica is this replica of the provider among others. It is nil if the provider
	// never has other replicas.
	Replica *peer.Replica
}

// Controller holds the functions of one provider.
type Controller struct {
	keeper.Base[*function]
	options Options
	engine  systems.Scaler
	rules   latency.Rules
	finder  *latency.Finder

	mu        sync.Mutex
	functions map[string]*function
	// order has the functions by name, nil when it must be made again. seen are those of the latest look.
	order  []*function
	seen   []scaling.Function
	keeper *keeper.Keeper[*instance]
	// nodes are the nodes at the latest look, with their free resources.
	nodes []cluster.Node
	saver saver
	// few is fewFunctions, and lookedAt when the functions were last looked at.
	few      int
	lookedAt time.Time
	// The rooms own what they need of a controller, and share its lock.
	peers        peers
	checks       checks
	revisions    revisions
	driver       driver
	handovers    handovers
	shares       shares
	fleetSize    fleetSize
	arrivals     arrivals
	types        paces
	interference interference
	trials       trials
	pairs        pairs
	display      display
}

// leastOnCluster is the least CPU share of a pod in millicores, because a kubelet's quota periods are long.
const leastOnCluster = 250

// rulesOf returns how functions are planned.
func rulesOf(o Options) latency.Rules {
	r := latency.Rules{Policy: o.Policy, Scaling: o.System.Settings().Options}
	if !o.OneMachine {
		r.LeastCPU = leastOnCluster
	}
	return r
}

// New returns a controller that knows the instances which an earlier provider has left
// on the backend; Deploy claims them. Call Run to make it work.
func New(ctx context.Context, o Options) (*Controller, error) {
	c := &Controller{
		options: o, engine: o.System.Scaler(), rules: rulesOf(o),
		functions: map[string]*function{}, few: fewFunctions,
	}
	c.Base = keeper.NewBase(&c.mu, c.functions, o.Metrics, keeper.Answers[*function]{
		Describe: c.display.description, Status: c.display.status, Release: c.Release,
	})
	c.finder = latency.NewFinder(latency.Finder{
		Models: o.Models, Devices: o.Devices, Profiles: o.Profiles, Rules: c.rules, Predict: o.Predict, Longest: o.Longest,
		LongestOn: o.LongestOn, Engine: o.Engine, EngineOn: o.EngineOn, Machine: o.Machine, Pace: o.Pace,
		Leading: o.Replica.Leads, Logger: o.Logger,
	})
	var err error
	c.keeper, err = keeper.New[*instance](ctx, keeper.Options{
		Backend: o.Backend, Logger: o.Logger, Lock: &c.mu, Wake: c.Wake, StopGrace: o.StopGrace, Replicas: o.Replica,
		Decisions: o.Decisions, Discover: c.peers.discovered,
	})
	if err != nil {
		return nil, err
	}
	setRooms(c, o)
	o.Replica.Attach(&c.peers)
	return c, nil
}

// setRooms gives the rooms of a controller what they need.
func setRooms(c *Controller, o Options) {
	c.saver = saver{
		mu: &c.mu, keeper: c.keeper, functions: c.functions, cold: o.Cold, leads: o.Replica.Leads,
		records:     latency.Records{Corrections: o.Corrections, Histories: o.Histories, Logger: o.Logger},
		corrections: time.Now(), histories: time.Now(), most: o.MaxSaves,
	}
	c.types = paces{yardstick: o.Yardstick, rules: &c.rules, records: &c.saver.records}
	c.checks = checks{rules: &c.rules, finder: c.finder, cuttable: o.Cuttable}
	c.trials = trials{mu: &c.mu, keeper: c.keeper, finder: c.finder, wake: c.Wake, by: o.Trials, eligible: o.Eligible}
	c.arrivals = arrivals{
		devices: o.Devices, keeper: c.keeper, functions: c.functions, trials: &c.trials, leading: c.finder.Leading,
	}
	c.interference = interference{
		mu: &c.mu, keeper: c.keeper, wake: c.Wake, led: o.Replica.Led, move: o.Move, eligible: o.Eligible,
	}
	c.pairs = pairs{
		mu: &c.mu, keeper: c.keeper, functions: c.functions, leads: o.Replica.Leads, wake: c.Wake, log: o.Logger,
	}
	if o.Shadows != nil {
		c.pairs.shadows = o.Shadows(c.finder)
	}
	c.handovers = handovers{keeper: c.keeper, types: &c.types, leads: o.Replica.Leads}
	c.driver = driver{
		mu: &c.mu, keeper: c.keeper, functions: c.functions, backend: o.Backend, replica: o.Replica,
		handovers: &c.handovers, pairs: &c.pairs, wake: c.Wake,
	}
	c.peers = peers{
		mu: &c.mu, keeper: c.keeper, functions: c.functions, replica: o.Replica, backend: o.Backend,
		claim: c.handovers.claim, wake: c.Wake, log: o.Logger,
	}
	c.revisions = revisions{
		mu: &c.mu, keeper: c.keeper, finder: c.finder, rules: &c.rules, records: &c.saver.records, types: &c.types,
		pairs: &c.pairs, trials: &c.trials, arrivals: &c.arrivals, checks: &c.checks, bundles: o.Bundles,
		improver: o.Improver, mapped: o.Mapped, engine: o.Engine, coldWait: o.ColdWait,
		leads: o.Replica.Leads, claim: c.handovers.claim, wake: c.Wake,
	}
	c.shares = shares{keeper: c.keeper, cpu: o.CPU}
	c.fleetSize = fleetSize{functions: c.functions, metrics: o.Metrics, notify: o.NodesWanted, decisions: o.Decisions}
	c.display = display{
		functions: c.functions, finder: c.finder, metrics: o.Metrics, decisions: o.Decisions, led: o.Replica.Led,
		arriving: o.Arriving, unprepared: o.Unprepared, shown: map[string]cluster.Node{},
	}
}

// newFunction returns a function without instances.
func (c *Controller) newFunction(f *provider.Function, batches batching.Policy) *function {
	fn := &function{
		Function: f, rules: &c.rules, types: &c.types.nodeTypes, replica: c.options.Replica, grace: c.options.StopGrace,
		log: c.options.Logger.With().Str("function", f.Name).Logger(), parked: -1,
		activity: systems.NewActivity(time.Now()), hasQueue: c.options.Backlog != nil, number: len(c.functions),
		decisions: c.options.Decisions,
	}
	fn.tuned, _ = batches.(*tuned)
	recorder := c.options.Metrics.Function(f.Name)
	var hold func(n int64) (release func(), err error)
	if bodies := c.options.Bodies; bodies != nil {
		hold = func(n int64) (release func(), err error) { return bodies.HoldAnswer(f.Name, n) }
	}
	fn.dispatcher = dispatch.New(dispatch.Options{
		Policy: batches, SLO: f.Inference.SLO, ColdWait: c.options.ColdWait, QueueLimit: c.options.QueueLimit,
		Recorder: recorder, OnCold: func() { c.options.Replica.WakeLeader(c.Wake) }, OnLost: c.keeper.Lost,
		OnSuspect: c.keeper.Suspect, Dial: c.options.Dial, Once: f.Inference.Once, Hold: hold, Counting: &fn.counting,
	})
	fn.Fleet = keeper.NewFleet[*instance](fn.dispatcher, recorder)
	fn.shadows = keeper.NewFleet[*instance](fn.dispatcher, recorder)
	fn.trials = keeper.NewFleet[*instance](fn.dispatcher, recorder)
	fn.classing = newClassing(fn)
	return fn
}

// Run follows the backend's events and asks the engine every tick, and at once after an
// event, until ctx ends.
func (c *Controller) Run(ctx context.Context) {
	c.Loop(ctx, c.options.Tick, keeper.Loop{
		Events: c.options.Backend.Events(), Observe: c.keeper.Observe, Look: c.scale, Rest: c.rest,
		Period: keeper.ReadingPeriod, Sample: func(now time.Time) {
			c.keeper.Sample()
			c.saver.due(now)
		},
	})
}

// rest returns the pause after a look that took this long. A replica that does not lead
// pauses for a whole tick, and looks for a twentieth of the time: nobody waits for its looks.
func (c *Controller) rest(took time.Duration) time.Duration {
	if !c.options.Replica.Led() {
		return max(c.options.Tick, 19*took)
	}
	return keeper.Rest(took, c.options.Tick)
}

// Learned prepares the functions again whose models have no times on some GPU: there are new profiles of
// operators, from which the times may follow now.
func (c *Controller) Learned() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.arrivals.learned()
}

// Close stops every instance and waits until all are gone; it kills those that remain when
// ctx ends. A replica among several leaves the instances to the others. Run must have
// returned.
func (c *Controller) Close(ctx context.Context) error {
	c.End(c.keeper.Tasks)
	err := c.keeper.Close(ctx)
	if c.options.Replica.Leads() {
		c.saver.flush()
	}
	return err
}
