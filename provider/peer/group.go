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
)

// Options are what a Group works with.
type Options struct {
	Membership Membership
	// Leading tells whether this replica scales.
	Leading func() bool
	// Credentials are all replicas' basic auth credentials; nil for none.
	Credentials *auth.BasicAuthCredentials
	// Tick is the time between two askings for loads while this replica leads and
	// there is any; else it is ten times as long.
	Tick time.Duration
	// Wait is how long an owner may take beyond a function's objective, cold starts
	// included, before it counts as stuck.
	Wait time.Duration
	// MaxBody is the largest body of a request that is handed on, in bytes; 256 MiB
	// if 0.
	MaxBody int64
	Logger  zerolog.Logger
	// Dial connects to other replicas; nil means net.Dialer's.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

const (
	// connectPatience is how long it may take to connect to a replica, downFor how
	// long one is left out that could not be connected to.
	connectPatience = 500 * time.Millisecond
	downFor         = 2 * time.Second
	// answerPatience is how long a replica may take for what it need not wait for.
	answerPatience = time.Second
	// stale is after how long what a replica has told counts no more.
	stale = 5 * time.Second
	// idleTicks is how many ticks apart loads are asked for while there are none.
	idleTicks = 10
	// wakePause is the least time between two wake-ups of the leader.
	wakePause = 5 * time.Millisecond
	// connections to one replica that are kept: each carries one request at a time.
	connections = 512
)

// Group is this replica's side of working together. It is safe for concurrent use.
type Group struct {
	options Options
	boot    string
	client  *http.Client
	handler http.Handler
	local   atomic.Pointer[Local]
	// ordinary is what else loads come from; nil if nothing.
	ordinary atomic.Pointer[Ordinary]
	// own are this replica's dispatchers by function; down is until when members are
	// left out, by ID.
	own, down sync.Map
	kick      chan struct{}
	serve     chan served

	remotes remotes
}

// New returns a group that does nothing until Attach and Run.
func New(o Options) *Group {
	if o.Dial == nil {
		o.Dial = (&net.Dialer{Timeout: connectPatience, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: time.Second, Count: 5}}).DialContext
	}
	if o.MaxBody <= 0 {
		o.MaxBody = 256 << 20
	}
	g := &Group{options: o, boot: rand.Text(), kick: make(chan struct{}, 1), serve: make(chan served, 1024), remotes: remotes{all: map[string]*remote{}}}
	g.client = &http.Client{Transport: &http.Transport{
		DialContext: g.dial, MaxIdleConnsPerHost: connections, IdleConnTimeout: time.Minute, DisableCompression: true,
		WriteBufferSize: 64 << 10, ReadBufferSize: 64 << 10,
	}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	g.handler = g.routes()
	return g
}

// Attach names whose loads are told and who is woken. It is called once, before Run.
func (g *Group) Attach(l Local) { g.local.Store(&l) }

// AttachOrdinary names a controller of ordinary functions, whose loads are told, too,
// and which is woken. It is called at most once, before Run.
func (g *Group) AttachOrdinary(o Ordinary) { g.ordinary.Store(&o) }

// seen is what this replica has seen.
func (g *Group) seen(l Local, since uint64) Load {
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
	return load
}

// wake has this replica look at the load.
func (g *Group) wake(l Local) {
	l.Wake()
	if o := g.ordinary.Load(); o != nil {
		(*o).Wake()
	}
}

// Listener hears what the others have seen, and leaves what was executed to whom
// learns from it.
type Listener struct{ group *Group }

// Listener is for controllers that want the loads only.
func (g *Group) Listener() Listener { return Listener{g} }

// Loads returns what each of the others last told, without what was executed.
func (l Listener) Loads() []Load { return l.group.remotes.loads(l.group.boot, false) }

// Wake is the group's.
func (l Listener) Wake() { l.group.Wake() }

// attached is what Attach was given, nil before.
func (g *Group) attached() Local {
	if l := g.local.Load(); l != nil {
		return *l
	}
	return nil
}

// Run asks the others for their loads and wakes the leader, until ctx ends.
func (g *Group) Run(ctx context.Context) {
	var loops sync.WaitGroup
	for _, loop := range []func(context.Context){g.ask, g.waking, g.serving} {
		loops.Go(func() { loop(ctx) })
	}
	loops.Wait()
	g.client.CloseIdleConnections()
}

// others are the members but this one.
func (g *Group) others() (out []Member) {
	self := g.options.Membership.Self()
	for _, m := range g.options.Membership.Members() {
		if m.ID != self {
			out = append(out, m)
		}
	}
	return out
}

func (g *Group) leading() bool { return g.options.Leading == nil || g.options.Leading() }

// isDown reports whether a member is left out for now.
func (g *Group) isDown(id string) bool {
	until, ok := g.down.Load(id)
	return ok && time.Now().Before(until.(time.Time))
}

// outOfReach leaves a member out for a while.
func (g *Group) outOfReach(m Member, err error) {
	if !g.isDown(m.ID) {
		g.options.Logger.Warn().Str("replica", m.ID).Str("url", m.URL).Err(err).Msg("another replica of the provider cannot be reached; its functions are dispatched elsewhere")
	}
	g.down.Store(m.ID, time.Now().Add(downFor))
}
