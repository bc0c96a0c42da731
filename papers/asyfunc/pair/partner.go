package pair

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/backoff"
	"github.com/faas-infer/faas-infer/instance/mutual"
	"github.com/faas-infer/faas-infer/papers/asyfunc/relay"
)

// partner is a shadow to which a body keeps a connection.
type partner struct {
	address Address
	cancel  context.CancelFunc
	ended   chan struct{}

	mu      sync.Mutex
	peer    *relay.Peer // nil while there is no connection
	refused error       // why there will be none, nil if there may
	row     mean        // of Φ on the shadow
	ahead   float64     // expected seconds of the jobs that it has
}

const (
	// dialTime bounds an attempt to connect. A shadow that hangs takes connections and does
	// not answer.
	dialTime = 500 * time.Millisecond
	// firstPause is that after a failed attempt; each further one takes twice as long, up to
	// lastPause.
	firstPause = 10 * time.Millisecond
	lastPause  = time.Second
)

func newPartner(a Address, dial mutual.Dial, mine relay.Identity, log zerolog.Logger) *partner {
	ctx, cancel := context.WithCancel(context.Background())
	p := &partner{address: a, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		p.keep(ctx, dial, mine, log.With().Str("shadow", a.Address).Logger())
	}()
	return p
}

// keep connects, and again whenever the connection has ended, until ctx ends or the shadow does
// not fit.
func (p *partner) keep(ctx context.Context, dial mutual.Dial, mine relay.Identity, log zerolog.Logger) {
	failures := 0
	for ctx.Err() == nil {
		limited, cancel := context.WithTimeout(ctx, dialTime)
		peer, err := relay.Dial(limited, dial, p.address.Network, p.address.Address, mine)
		cancel()
		if errors.Is(err, relay.ErrRefused) {
			log.Error().Err(err).Msg("the shadow is not used")
			p.mu.Lock()
			p.refused = err
			p.mu.Unlock()
			return
		}
		if err != nil {
			if failures++; failures == 1 && ctx.Err() == nil {
				log.Warn().Err(err).Msg("cannot connect to the shadow; trying again")
			}
			backoff.Wait(ctx, backoff.Pause(failures, firstPause, lastPause))
			continue
		}
		log.Info().Msg("paired with a shadow")
		failures = 0
		p.set(peer)
		select {
		case <-peer.Ended():
			log.Warn().Msg("the connection to the shadow ended")
		case <-ctx.Done():
		}
		p.set(nil)
		_ = peer.Close() // It may have ended.
	}
}

func (p *partner) set(peer *relay.Peer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.peer, p.ahead = peer, 0
}

// ready is the connection, nil without one, and the time of a row in seconds, 0 if it is unknown.
func (p *partner) ready() (*relay.Peer, float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.peer != nil {
		select {
		case <-p.peer.Ended():
			return nil, 0
		default:
		}
	}
	return p.peer, float64(p.row)
}

// within is the time that a job may take, and its expected time, for done. perRow is a row's time
// of the whole model, 0 if unknown: a shadow whose speed is unknown is taken to need as long.
func (p *partner) within(rows int, perRow time.Duration) (limit time.Duration, expected float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	expected = p.assumed(perRow) * float64(rows)
	limit = time.Duration(patience*(p.ahead+expected)*float64(time.Second)) + slack
	p.ahead += expected
	return limit, expected
}

// assumed is the time of a row in seconds, as within says. The lock is held.
func (p *partner) assumed(perRow time.Duration) float64 {
	return cmp.Or(float64(p.row), perRow.Seconds(), unknownRow.Seconds())
}

const (
	// patience is how many times its expected time a job may take, slack what it may take longer.
	// A shadow that was killed is noticed at once, and a batch's deadline counts apart, so they
	// bound only what a shadow that hangs costs. A false alarm costs the body the rows.
	patience = 4
	slack    = 50 * time.Millisecond
	// unknownRow is a row's time if nothing is known.
	unknownRow = time.Second
)

// done takes back what within added.
func (p *partner) done(expected float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ahead = max(0, p.ahead-expected)
}

// took notes the time of all runs of Φ for rows.
func (p *partner) took(d time.Duration, rows int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.row.add(d, rows)
}

// late doubles the expected time of a row, also that of a shadow which has computed none yet.
func (p *partner) late(perRow time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.row = mean(2 * p.assumed(perRow))
}

// connectedState is the status of a shadow that takes jobs.
const connectedState = "connected"

// status says how the shadow is, for people.
func (p *partner) status() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.refused != nil:
		return p.refused.Error()
	case p.peer != nil:
		return connectedState
	}
	return "not connected"
}

func (p *partner) close() error {
	p.cancel()
	<-p.ended
	return nil
}
