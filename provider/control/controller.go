// Package control drives the scaling engine: it keeps every function's artefacts with
// their profiles, its dispatcher and its instances, asks the engine several times a
// second what to start and what to retire, and does it through a keeper. Begin with
// Controller.scale; act.go does what the engine has planned, learn.go corrects the times,
// replicas.go is for a provider with several replicas. The engine decides; nothing here
// does. Nothing here is on a request's way but the wake-up that a cold request gives.
package control

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/coldstart"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/keeper"
	"github.com/faas-infer/faas-infer/provider/latency"
	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/provider/peer"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// Bundles finds the model that a function's image names.
type Bundles interface {
	// Model returns the bundle and a model file on this machine: the one in it
	// that the deployment names, or the manifest's. The bundle is a directory, or
	// the reference of an image that names its content; then a function whose
	// image has another content runs another model.
	Model(ctx context.Context, f *provider.Function) (bundle, file string, err error)
}

// Secrets finds functions' secrets.
type Secrets interface {
	// File returns the file with a secret's value, "" where instances have it
	// from elsewhere, or an error that names the secret.
	File(namespace, secret string) (string, error)
	// Version changes when the secret is replaced; "" if there is none.
	Version(namespace, secret string) string
}

// Options configure a controller.
type Options struct {
	Backend cluster.Backend
	// System says what is started and stopped: the simulator runs the same.
	System systems.System
	Cold   coldstart.Policy
	Models latency.Models
	// Predict has models' times predicted when they are deployed, where that
	// can be done; else they are measured.
	Predict  bool
	Profiles latency.Profiles
	// Corrections may be nil; a restart then begins with the profiles alone.
	Corrections latency.Corrections
	// Histories may be nil; a restart then begins without what Cold has learned.
	Histories latency.Histories
	Bundles   Bundles
	Secrets   Secrets
	Metrics   *metrics.Metrics
	Logger    zerolog.Logger
	// Policy is the batching policy of functions that name none.
	Policy string
	// ColdWait is how long beyond its SLO a request that finds no ready
	// instance may wait; QueueLimit how many may wait per function.
	ColdWait   time.Duration
	QueueLimit int
	// Tick is the time between two looks at the load. While no function has
	// an instance or a request, it is ten times as long.
	Tick time.Duration
	// StopGrace is how long a retired instance may take to finish what it
	// has, and then to leave.
	StopGrace time.Duration
	// Engine and Machine are what profiles must be of, as they name them; a
	// profile of another is measured anew.
	Engine, Machine string
	// Dial connects to an instance; nil means net.Dialer's.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Eligible lists the nodes on which a function's instances may start, nil for
	// all, and says why if there are none. It is asked at every look, so it should
	// not take long; nil means that all are.
	Eligible func(f *provider.Function) (nodes []string, why string)
	// Replica is this replica of the provider among others; nil: it is alone, now and
	// later.
	Replica *peer.Replica
}

// Controller holds the functions of one provider.
type Controller struct {
	options Options
	engine  systems.Scaler
	rules   latency.Rules
	finder  *latency.Finder

	kick keeper.Kick

	mu        sync.Mutex
	functions map[string]*function
	keeper    *keeper.Keeper[*instance]
	// nodes are those of the latest look, with what was free.
	nodes []cluster.Node
	// shown is what the metrics hold of the nodes; recorded is when they last were
	// brought up to date.
	shown    map[string]cluster.Node
	recorded time.Time
	saver    saver
}

// New returns a controller that has found the instances of an earlier provider
// on the backend; Deploy claims them. Run serves.
func New(ctx context.Context, o Options) (*Controller, error) {
	c := &Controller{
		options: o, engine: o.System.Scaler(), kick: keeper.NewKick(), rules: latency.Rules{Policy: o.Policy, Scaling: o.System.Settings().Options},
		functions: map[string]*function{}, shown: map[string]cluster.Node{},
	}
	c.saver = saver{of: c, records: latency.Records{Corrections: o.Corrections, Histories: o.Histories, Logger: o.Logger}, corrections: time.Now(), histories: time.Now()}
	c.finder = latency.NewFinder(latency.Finder{
		Models: o.Models, Profiles: o.Profiles, Rules: c.rules, Predict: o.Predict, Engine: o.Engine, Machine: o.Machine,
		Leading: o.Replica.Leads, Logger: o.Logger,
	})
	var err error
	c.keeper, err = keeper.New[*instance](ctx, keeper.Options{
		Backend: o.Backend, Logger: o.Logger, Lock: &c.mu, Wake: c.Wake, StopGrace: o.StopGrace, Replicas: o.Replica, Discover: c.discovered,
	})
	if err != nil {
		return nil, err
	}
	o.Replica.Attach(c)
	return c, nil
}

// Run follows the backend's events and asks the engine every tick, and at once
// when something happened, until ctx ends.
func (c *Controller) Run(ctx context.Context) {
	keeper.Loop{
		Kick: c.kick, Events: c.options.Backend.Events(), Observe: c.keeper.Observe, Look: c.scale, Rest: c.rest,
		Period: keeper.ReadingPeriod, Sample: func(now time.Time) {
			c.keeper.Sample()
			c.saver.due(now)
		},
	}.Run(ctx)
}

// rest is the pause after a look that took so long. Nobody waits for that of a replica
// which does not lead.
func (c *Controller) rest(took time.Duration) time.Duration {
	if !c.options.Replica.Led() {
		return c.options.Tick
	}
	return keeper.Rest(took, c.options.Tick)
}

// Wake makes Run look at the load now.
func (c *Controller) Wake() { c.kick.Now() }

// Close stops every instance and waits until nothing of them is left; those
// that are still there when ctx ends are killed. One replica of several leaves the
// instances to the others. Run must have returned.
func (c *Controller) Close(ctx context.Context) error {
	c.mu.Lock()
	c.keeper.End()
	for _, fn := range c.functions {
		fn.dispatcher.Close()
	}
	c.mu.Unlock()
	err := c.keeper.Close(ctx)
	if c.options.Replica.Leads() {
		c.saver.rest()
	}
	return err
}
