package peer

import (
	"context"
	"errors"
	"net"
	"net/url"
	"sync"
	"time"

	"github.com/faas-infer/faas-infer/health"
	"github.com/faas-infer/faas-infer/health/probe"
)

const (
	// watchAfter is how long a request may be at a replica before the replica is asked whether it
	// lives, at most every askPause, with at most askTime for the answer.
	watchAfter = 100 * time.Millisecond
	askPause   = 200 * time.Millisecond
	askTime    = 150 * time.Millisecond
	// silentAfter is the silence after which a replica gets no requests. While somebody needs it,
	// it is asked again after silentPause, and gets requests once it answers.
	silentAfter = 300 * time.Millisecond
	silentPause = 500 * time.Millisecond
	// downFor is how long a replica is left out that broke off a connection, or could not be
	// reached, before it is asked again; endedFor is that of one that is leaving: the pod of a lost
	// node may be leaving for days.
	downFor  = 2 * time.Second
	endedFor = 30 * time.Second
)

// errSilent is why a request goes to another replica: the one that has it answers nothing.
var errSilent = errors.New("it does not answer")

// peers is what is known of the health of other replicas, by ID. Its zero value is ready.
type peers struct {
	mu  sync.Mutex
	all map[string]*peerHealth
}

// peerHealth is the health of one replica. The lock of peers guards it.
type peerHealth struct {
	health health.Target
	member Member
	// inFlight counts the requests that were handed to it.
	inFlight int
	// next is when it may be asked again while it is silent.
	next time.Time
	// silent ends when it becomes silent, by fall. Both are new when it answers again.
	silent context.Context
	fall   context.CancelFunc
}

// of returns a replica's health. The lock is held.
func (p *peers) of(m Member) *peerHealth {
	s := p.all[m.ID]
	if s == nil {
		if p.all == nil {
			p.all = map[string]*peerHealth{}
		}
		s = &peerHealth{}
		s.silent, s.fall = context.WithCancel(context.Background())
		p.all[m.ID] = s
	}
	s.member = m
	return s
}

// keep forgets the replicas that are no members any more.
func (p *peers) keep(members []Member) {
	present := make(map[string]bool, len(members))
	for _, m := range members {
		present[m.ID] = true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for id, s := range p.all {
		// One that is leaving and out of reach is not among them.
		if !present[id] && s.inFlight == 0 && (!s.member.leaving || !now.Before(s.next)) {
			s.fall()
			delete(p.all, id)
		}
	}
}

// isDown reports whether a member is left out for now. One that has been silent for long enough is
// asked meanwhile.
func (g *Group) isDown(m Member) bool {
	g.peers.mu.Lock()
	defer g.peers.mu.Unlock()
	s, known := g.peers.all[m.ID]
	if !known || s.health.Serves() {
		return false
	}
	if now := time.Now(); s.health.State() == health.Silent && !now.Before(s.next) {
		if m.leaving { // Whoever needs it finds out.
			s.heard(now)
			return false
		}
		s.next = now.Add(silentPause)
		go askOf(g, s)
	}
	return true
}

// heard notes that a replica answers. The lock is held.
func (s *peerHealth) heard(now time.Time) {
	s.health.Heard(now, false)
	if s.silent.Err() != nil {
		s.silent, s.fall = context.WithCancel(context.Background())
	}
}

// outOfReach leaves a member out for a while, and then until it answers.
func (g *Group) outOfReach(m Member, err error) {
	g.peers.mu.Lock()
	defer g.peers.mu.Unlock()
	s := g.peers.of(m)
	pause := downFor
	if m.leaving {
		pause = endedFor
	}
	s.next = time.Now().Add(pause)
	if s.health.State() != health.Silent && !m.leaving {
		g.options.Logger.Warn().Str("replica", m.ID).Str("url", m.URL).Err(err).Msg("another replica of the provider cannot be reached; its functions are dispatched elsewhere")
	}
	s.health.Doubt(true)
	s.health.Unheard(silentAfter, health.Rules{Eject: silentAfter})
}

// watched counts a request that is handed to a member, until done is called, and asks the member whether
// it lives if that takes long. The context ends when the member becomes silent.
func watched(g *Group, m Member) (silent context.Context, done func()) {
	g.peers.mu.Lock()
	defer g.peers.mu.Unlock()
	s := g.peers.of(m)
	s.inFlight++
	watch := time.AfterFunc(watchAfter, func() {
		g.peers.mu.Lock()
		ask := s.inFlight > 0 && s.health.Doubt(false)
		g.peers.mu.Unlock()
		if ask {
			askOf(g, s)
		}
	})
	return s.silent, func() {
		watch.Stop()
		g.peers.mu.Lock()
		defer g.peers.mu.Unlock()
		s.inFlight--
	}
}

// askOf asks a replica whether it lives until it answers and has no requests, or is silent.
func askOf(g *Group, s *peerHealth) {
	g.peers.mu.Lock()
	m := s.member
	g.peers.mu.Unlock()
	ask := func(within time.Duration) error {
		u, err := url.Parse(m.URL)
		if err != nil {
			return err
		}
		address := u.Host
		if u.Port() == "" {
			address = net.JoinHostPort(u.Hostname(), "80")
		}
		return probe.Alive(g.dial, "tcp", address, within)
	}
	probe.Watch(nil, probe.Times{Within: askTime, Pause: askPause}, ask, func(err error, silence time.Duration) bool { return judge(g, s, err, silence) })
}

// judge acts on a replica's answer, err if there is none since silence. done says that it is not asked
// again for now.
func judge(g *Group, s *peerHealth, err error, silence time.Duration) (done bool) {
	g.peers.mu.Lock()
	defer g.peers.mu.Unlock()
	now, was := time.Now(), s.health.State()
	if err == nil {
		s.heard(now)
		if was == health.Silent {
			g.options.Logger.Info().Str("replica", s.member.ID).Msg("another replica of the provider answers again")
		}
		return s.inFlight == 0 || !s.health.Doubt(false)
	}
	s.health.Unheard(silence, health.Rules{Eject: silentAfter})
	if s.health.State() != health.Silent {
		return !s.health.Asking()
	}
	if was != health.Silent {
		s.next = now.Add(silentPause)
		s.fall()
		g.options.Logger.Warn().Str("replica", s.member.ID).Str("url", s.member.URL).Err(err).Msg("another replica of the provider does not answer; its functions are dispatched elsewhere")
	}
	return true
}
