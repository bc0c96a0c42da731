package peer

import (
	"context"
	"crypto/rand"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/openfaas/faas-provider/auth"
	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/decisions"
	"github.com/faas-infer/faas-infer/provider/web"
)

// Options configure a Group.
type Options struct {
	Membership Membership
	// Leading reports whether this replica leads; if nil, it always does.
	Leading func() bool
	// Credentials are the basic auth credentials that all replicas share; nil for none.
	Credentials *auth.BasicAuthCredentials
	// Tick is the time between two polls of the others' loads, while this replica leads
	// and they have requests. Otherwise it is ten times as long.
	Tick time.Duration
	// ColdWait is that of the dispatchers.
	ColdWait time.Duration
	// Bodies reads the requests that others hand on; nil for a reader with the provider's
	// default limits.
	Bodies *web.BodyReader
	// InFlight counts the requests that others hand on; nil for a gate that stays open. Once
	// it is closed, they are not taken, and the others execute them.
	InFlight *web.Gate
	Logger   zerolog.Logger
	// Dial connects to other replicas; the default is net.Dialer's DialContext.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Secure makes a connection of Dial's one with TLS; nil for none. It closes it after an error.
	Secure func(ctx context.Context, conn net.Conn) (net.Conn, error)
	// Decisions gets the decisions of the others, and these get this replica's; nil for none.
	Decisions *decisions.Log
	// Tracer traces the requests that others hand on, nil for none.
	Tracer interface {
		Begin(h http.Header, at time.Time) *frame.Trace
		End(t *frame.Trace)
	}
}

const (
	// connectTimeout bounds connecting to a replica.
	connectTimeout = 500 * time.Millisecond
	// answerTimeout bounds the answer to a request that a replica can answer at once.
	answerTimeout = time.Second
	// handTime is how much longer than the owner may take a replica waits for its answer.
	handTime = 100 * time.Millisecond
	// staleAfter is how long a replica's load counts.
	staleAfter = 5 * time.Second
	// idleTicks is the number of ticks between two polls while there are no requests.
	idleTicks = 10
	// wakePause is the minimum time between two wake-ups of the leader.
	wakePause = 5 * time.Millisecond
	// connections is the maximum number of kept connections to one replica. Each carries
	// one request at a time.
	connections = 512
)

// Group connects this replica with the others: it hands requests on, polls loads and serves the
// routes for the others. It is safe for concurrent use.
type Group struct {
	options Options
	boot    string
	client  *http.Client
	handler http.Handler
	local   atomic.Pointer[Local]
	// ordinary is the controller of ordinary functions, nil if there is none.
	ordinary atomic.Pointer[Ordinary]
	// counter counts requests for other replicas, nil before [Rates.Attach].
	counter atomic.Pointer[RateCounter]
	// follower splits requests as the leader says, nil before [Rollouts.Attach].
	follower atomic.Pointer[RolloutFollower]
	// own holds this replica's dispatchers by function.
	own   sync.Map
	kick  chan struct{}
	serve chan served

	remotes remotes
	changes changes
	peers   peers
}

// New returns a group that does nothing until Attach and Run.
func New(o Options) *Group {
	if o.Dial == nil {
		o.Dial = (&net.Dialer{Timeout: connectTimeout, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: time.Second, Count: 5}}).DialContext
	}
	if o.InFlight == nil {
		o.InFlight = web.NewGate()
	}
	if o.Bodies == nil {
		o.Bodies = web.NewBodyReader(provider.DefaultMaxBody, provider.DefaultBodyTimeout, provider.DefaultMaxHeld)
	}
	g := &Group{options: o, boot: rand.Text(), kick: make(chan struct{}, 1), serve: make(chan served, 1024), remotes: remotes{all: map[string]*remote{}}}
	g.client = &http.Client{Transport: &http.Transport{
		DialContext: g.dial, MaxIdleConnsPerHost: connections, IdleConnTimeout: time.Minute, DisableCompression: true,
		WriteBufferSize: 64 << 10, ReadBufferSize: 64 << 10,
	}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	g.handler = g.routes()
	return g
}

// Attach sets the source of this replica's loads, which the group also wakes. Call it once, before
// Run.
func (g *Group) Attach(l Local) { g.local.Store(&l) }

// AttachOrdinary adds a controller of ordinary functions: the group also reports its loads and
// wakes it. Call it at most once, before Run.
func (g *Group) AttachOrdinary(o Ordinary) { g.ordinary.Store(&o) }

// seen returns the load that this replica has seen, with the batches executed after since and the
// functions whose load has changed after a version.
func (g *Group) seen(l Local, since, version uint64) Load {
	load := l.Load(since)
	load.Boot = g.boot
	if o := g.ordinary.Load(); o != nil {
		if load.Functions == nil {
			load.Functions = map[string]FunctionLoad{}
		}
		for name, f := range (*o).Loads() {
			load.Functions[name] = f
		}
	}
	load.Functions, load.Version, load.Whole = g.changes.since(time.Now(), version, load.Functions)
	return load
}

// wake makes this replica's controllers look at the load.
func (g *Group) wake(l Local) {
	l.Wake()
	if o := g.ordinary.Load(); o != nil {
		(*o).Wake()
	}
}

// Listener reads the others' loads without taking their executed batches.
type Listener struct{ group *Group }

// Listener returns a reader for controllers that need the loads only.
func (g *Group) Listener() Listener { return Listener{g} }

// Loads returns the latest load of each other replica, without executed batches.
func (l Listener) Loads() []Load { return l.group.remotes.loads(l.group.boot, false) }

// Wake makes the leader look at the load now.
func (l Listener) Wake() { l.group.Wake() }

// attached returns the argument of Attach, nil before it was called.
func (g *Group) attached() Local {
	if l := g.local.Load(); l != nil {
		return *l
	}
	return nil
}

// Run polls the others for their loads and sends them this replica's messages, until ctx ends.
func (g *Group) Run(ctx context.Context) {
	var loops sync.WaitGroup
	for _, loop := range []func(context.Context){g.pollLoads, g.wakeLoop, g.serveLoop, func(ctx context.Context) { followDecisions(ctx, g) }} {
		loops.Go(func() { loop(ctx) })
	}
	loops.Wait()
	g.client.CloseIdleConnections()
}

// others returns all members but this replica, and the leaving replicas that have not ended.
func (g *Group) others() (out []Member) {
	self := g.options.Membership.Self()
	for _, m := range g.options.Membership.Members() {
		if m.ID != self {
			out = append(out, m)
		}
	}
	for _, m := range g.options.Membership.Leaving() {
		if m.leaving = true; m.ID != self && !g.isDown(m) {
			out = append(out, m)
		}
	}
	return out
}

func (g *Group) leading() bool { return g.options.Leading == nil || g.options.Leading() }
