// Package control drives the scaling engine: it keeps every function's model,
// profile, dispatcher and instances, asks the engine several times a second
// what to start and what to retire, and does it through the cluster's backend.
// The engine decides; nothing here does. Nothing here is on a request's way but
// the wake-up that a cold request gives.
package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/coldstart"
	"github.com/faas-infer/faas-infer/policy"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/scaling"
)

// Models looks at model files, outside the provider's own process.
type Models interface {
	// Check returns an error that names what is wrong with a model file, or
	// nil.
	Check(ctx context.Context, file string) error
	// Hash identifies a model file's content. It is asked often, so it should
	// not read a file again that has not changed.
	Hash(file string) (string, error)
	// Prepare makes the model ready for this host's instances, once, and
	// returns the directory that they load.
	Prepare(ctx context.Context, file string) (prepared string, err error)
	// Measure prepares the model and measures it for batches of up to
	// maxBatch that take no longer than until. It is never asked twice at the
	// same time.
	Measure(ctx context.Context, file string, maxBatch int, until time.Duration) (prepared string, p *profiler.Profile, err error)
	// Predict is Measure, but combines the times of the model's operators
	// (INFless §3.3). It wraps ErrUnpredictable where that cannot be done.
	Predict(ctx context.Context, file string, maxBatch int, until time.Duration) (prepared string, p *profiler.Profile, err error)
}

// Profiles keeps models' profiles.
type Profiles interface {
	Profile(key string) (*profiler.Profile, error)
	PutProfile(key string, p *profiler.Profile) error
}

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
	// Scaling are the engine's settings.
	Scaling scaling.Settings
	Cold    coldstart.Policy
	Models  Models
	// Predict has models' times predicted when they are deployed, where that
	// can be done; else they are measured.
	Predict  bool
	Profiles Profiles
	// Corrections may be nil; a restart then begins with the profiles alone.
	Corrections Corrections
	// Histories may be nil; a restart then begins without what Cold has learned.
	Histories Histories
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
	engine  policy.Scaler
	kick    chan struct{}
	// measuring and preparing hold a token while a model is measured or
	// prepared: measurements side by side would disturb each other.
	measuring, preparing chan struct{}

	// ctx ends when Close begins: from then on nothing is begun. stops ends
	// when Close's patience does: what is still stopping is then killed.
	// work counts what goes on in the background.
	ctx, stops   context.Context
	cancel, kill context.CancelFunc
	work         sync.WaitGroup

	mu        sync.Mutex
	functions map[string]*function
	instances map[cluster.InstanceID]*instance
	// known are instances of an earlier provider that no function has claimed
	// yet, or that nobody wants.
	known map[cluster.InstanceID]*orphan
	// shown is what the metrics hold of the nodes.
	shown map[string]cluster.Node
	// blind is why the nodes could not be listed, "" if they could.
	blind    string
	sampling bool
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
		options: o, engine: scaling.New(o.Scaling), kick: make(chan struct{}, 1),
		measuring: make(chan struct{}, 1), preparing: make(chan struct{}, 1),
		functions: map[string]*function{}, instances: map[cluster.InstanceID]*instance{},
		known: map[cluster.InstanceID]*orphan{}, broken: map[cluster.InstanceID]string{}, shown: map[string]cluster.Node{}, saved: time.Now(), savedHistories: time.Now(),
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.stops, c.kill = context.WithCancel(context.Background())
	for _, in := range found {
		c.known[in.ID] = &orphan{Instance: in, since: time.Now()}
	}
	return c, nil
}

const (
	// passPause is the least time between two looks at the load, however many
	// requests ask for one.
	passPause = 5 * time.Millisecond
	// passShare bounds what the looks take of one core: 1/passShare.
	passShare = 5
	// usagePeriod is the time between two readings of what instances use.
	usagePeriod = 5 * time.Second
)

// Run follows the backend's events and asks the engine every tick, and at once
// when something happened, until ctx ends. Instances of an earlier provider
// whose functions are gone are stopped first.
func (c *Controller) Run(ctx context.Context) {
	if !c.several() {
		c.stopUnclaimed()
	}
	next, usage := time.NewTimer(0), time.NewTicker(usagePeriod)
	defer next.Stop()
	defer usage.Stop()
	events := c.options.Backend.Events()
	var rested time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case in, ok := <-events:
			if !ok {
				return
			}
			c.observe(in)
		case now := <-usage.C:
			c.sample()
			c.save(now)
			continue
		case <-next.C:
		case <-c.kick:
		}
		began := time.Now()
		if pause := rested.Sub(began); pause > 0 {
			next.Reset(pause)
			continue
		}
		next.Reset(c.scale(began))
		now := time.Now()
		rested = now.Add(c.rest(now.Sub(began)))
	}
}

// rest is the pause after a look that took so long. Nobody waits for that of a replica
// which does not lead.
func (c *Controller) rest(took time.Duration) time.Duration {
	if c.several() && !c.led {
		return c.options.Tick
	}
	return max(passPause, min((passShare-1)*took, c.options.Tick))
}

// Wake makes Run look at the load now.
func (c *Controller) Wake() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// begin runs f in the background, unless the controller is closed. The lock is
// held.
func (c *Controller) begin(f func()) {
	if c.ctx.Err() == nil {
		c.work.Go(f)
	}
}

// Close stops every instance and waits until nothing of them is left; those
// that are still there when ctx ends are killed. One replica of several leaves the
// instances to the others. Run must have returned.
func (c *Controller) Close(ctx context.Context) error {
	c.mu.Lock()
	c.cancel()
	for _, fn := range c.functions {
		fn.dispatcher.Close()
	}
	stops := c.stopsOfAll(ctx)
	c.mu.Unlock()
	defer context.AfterFunc(ctx, c.kill)()
	failures := make(chan error, len(stops))
	for _, stop := range stops {
		go func() { failures <- stop() }()
	}
	var err error
	for range stops {
		err = errors.Join(err, <-failures)
	}
	c.work.Wait()
	c.kill()
	if c.leading() {
		c.mu.Lock()
		states, histories := c.unsaved(), c.unsavedHistories()
		c.mu.Unlock()
		c.write(states)
		c.writeHistories(histories)
	}
	return err
}
