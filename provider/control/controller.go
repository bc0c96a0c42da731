// Package control drives the scaling engine: it keeps every function's model,
// profile, dispatcher and instances, asks the engine several times a second
// what to start and what to retire, and does it through the cluster's backend.
// The engine decides; nothing here does. Nothing here is on a request's way but
// the wake-up that a cold request gives.
package control

import (
	"context"
	"fmt"
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
	// Leading tells whether this replica of the provider is the one that starts
	// and stops instances. The others dispatch to all instances, learn the same
	// and plan along, so that each can go on where the leader leaves. nil: there
	// is no other replica, now or later.
	Leading func() bool
	// Peers are the other replicas; nil if there are none.
	Peers Peers
}

// Controller holds the functions of one provider.
type Controller struct {
	options Options
	engine  systems.Scaler
	rules   latency.Rules
	finder  *latency.Finder

	kick   keeper.Kick
	keeper *keeper.Keeper

	mu        sync.Mutex
	functions map[string]*function
	instances map[cluster.InstanceID]*instance
	// known are instances of an earlier provider that no function has claimed
	// yet, or that nobody wants.
	known map[cluster.InstanceID]*orphan
	// nodes are those of the latest look, with what was free.
	nodes []cluster.Node
	// shown is what the metrics hold of the nodes; recorded is when they last were
	// brought up to date.
	shown    map[string]cluster.Node
	recorded time.Time
	// blind is why the nodes could not be listed, "" if they could.
	blind string
	// led: this replica has been leading since ledSince, at the latest look.
	led      bool
	ledSince time.Time
	// broken are the instances that broke off an exchange with this replica, while
	// another leads; ran is what was executed for it, of which others want to know.
	broken map[cluster.InstanceID]string
	ran    chronicle
	// saving: what was seen is being written; saved is when it last was, and
	// savedHistories when what Cold has learned was.
	saving                bool
	saved, savedHistories time.Time
}

// New returns a controller that has found the instances of an earlier provider
// on the backend; Deploy claims them. Run serves.
func New(ctx context.Context, o Options) (*Controller, error) {
	found, err := o.Backend.Instances(ctx)
	if err != nil {
		return nil, fmt.Errorf("list instances: %w", err)
	}
	c := &Controller{
		options: o, engine: o.System.Scaler(), kick: keeper.NewKick(), keeper: keeper.New(o.Backend, o.Logger),
		rules:     latency.Rules{Policy: o.Policy, Scaling: o.System.Settings().Options},
		functions: map[string]*function{}, instances: map[cluster.InstanceID]*instance{},
		known: map[cluster.InstanceID]*orphan{}, broken: map[cluster.InstanceID]string{}, shown: map[string]cluster.Node{}, saved: time.Now(), savedHistories: time.Now(),
	}
	c.finder = latency.NewFinder(latency.Finder{
		Models: o.Models, Profiles: o.Profiles, Rules: c.rules, Predict: o.Predict, Engine: o.Engine, Machine: o.Machine,
		Leading: c.leading, Logger: o.Logger,
	})
	for _, in := range found {
		c.known[in.ID] = &orphan{Instance: in, since: time.Now()}
	}
	return c, nil
}

// Run follows the backend's events and asks the engine every tick, and at once
// when something happened, until ctx ends. Instances of an earlier provider
// whose functions are gone are stopped first.
func (c *Controller) Run(ctx context.Context) {
	if !c.several() {
		c.stopUnclaimed()
	}
	keeper.Loop{
		Kick: c.kick, Events: c.options.Backend.Events(), Observe: c.observe, Look: c.scale, Rest: c.rest,
		Period: keeper.ReadingPeriod, Sample: func(now time.Time) {
			c.sample()
			c.save(now)
		},
	}.Run(ctx)
}

// rest is the pause after a look that took so long. Nobody waits for that of a replica
// which does not lead.
func (c *Controller) rest(took time.Duration) time.Duration {
	if c.several() && !c.led {
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
	stops := c.stopsOfAll(ctx)
	c.mu.Unlock()
	err := c.keeper.Close(ctx, stops)
	if c.leading() {
		c.mu.Lock()
		states, histories := c.unsaved(), c.unsavedHistories()
		c.mu.Unlock()
		c.records().Write(states, c.has)
		c.records().WriteHistories(histories, c.has)
	}
	return err
}
