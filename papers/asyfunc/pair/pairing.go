package pair

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/papers/asyfunc/relay"
)

// pairing is a body with its shadows, from one order to the next.
type pairing struct {
	body     *Body
	order    Order
	stages   []stage
	partners []*partner
	// alone is held by the only batch of a synchronous pair.
	alone    turn
	users    sync.WaitGroup
	inflight atomic.Int64

	mu     sync.Mutex
	memory *relay.Memory // nil until the first batch, and without a shadow on this node
	times  times
	carry  []float64
}

// stage is a segment of the body, in the order of computation.
type stage struct {
	part
	rowBytes []int
	// phi is the number of the run of Φ, -1 for the body's own layers. feeds is true if a run
	// of Φ comes later.
	phi   int
	feeds bool
}

// pair opens the segments for a Φ and begins to connect.
func (b *Body) pair(phi Phi, o Order) (_ *pairing, err error) {
	if err := phi.check(b.segments.Blocks()); err != nil {
		return nil, err
	}
	p := &pairing{body: b, order: o, carry: make([]float64, len(o.Shadows)), times: times{own: make(map[int]*mean)}}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	var shared []*onnxruntime.Segment
	at := 0
	for i, r := range append(phi[:len(phi):len(phi)], Run{b.segments.Blocks(), 0}) {
		if r.First > at {
			if _, err := p.open(at, r.First, -1); err != nil {
				return nil, err
			}
		}
		if i == len(phi) {
			break
		}
		s, err := p.open(r.First, r.End, i)
		if err != nil {
			return nil, err
		}
		shared, at = append(shared, s), r.End
	}
	for i := range p.stages {
		for _, later := range p.stages[i+1:] {
			p.stages[i].feeds = p.stages[i].feeds || later.phi >= 0
		}
	}
	mine := identity(b.prepared, phi, shared)
	for _, a := range o.Shadows {
		p.partners = append(p.partners, newPartner(a, b.options.dial(), mine, b.options.Logger))
	}
	return p, nil
}

// open opens the blocks from first up to, but without, end as the next stage.
func (p *pairing) open(first, end, phi int) (*onnxruntime.Segment, error) {
	s, err := p.body.segments.Segment(first, end)
	if err != nil {
		return nil, err
	}
	if err := s.Closed(); err != nil {
		return nil, fmt.Errorf("phi is %s: %w", p.order.Phi, err)
	}
	e, err := s.Open(p.body.options.open())
	if err != nil {
		return nil, err
	}
	p.stages = append(p.stages, stage{part: part{s, e}, rowBytes: s.RowBytes(), phi: phi})
	return s, nil
}

// close waits for the batches that use the pairing and frees it.
func (p *pairing) close() error {
	p.users.Wait()
	var errs []error
	for _, o := range p.partners {
		errs = append(errs, o.close())
	}
	for _, s := range p.stages {
		errs = append(errs, s.engine.Close())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.memory != nil {
		errs = append(errs, p.memory.Retire())
	}
	return errors.Join(errs...)
}

// shared is the memory for a batch, nil if there is none.
func (p *pairing) shared() *relay.Memory {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.memory == nil || p.memory.Retired() {
		var err error
		if p.memory, err = relay.NewMemory(); err != nil { // Tensors then go with the messages.
			p.body.options.Logger.Warn().Err(err).Msg("no memory to share with the shadows")
			p.memory = nil
		}
	}
	return p.memory
}

// connected is a shadow that takes jobs.
type connected struct {
	*partner
	peer *relay.Peer
	rows int
}

// split divides a batch's rows. Shadows that are not connected get none. pieces is the number of
// shadows that get some. It counts the batch as in flight.
func (p *pairing) split(rows int) (shares []connected, pieces int) {
	pipelined := p.inflight.Add(1) > 1 && !p.order.Synchronous
	var r rates
	for _, o := range p.partners {
		peer, perRow := o.ready()
		if peer == nil {
			continue
		}
		shares = append(shares, connected{partner: o, peer: peer})
		r.shadows, r.most = append(r.shadows, perRow), append(r.most, peer.MaxRows())
	}
	if len(shares) == 0 {
		return nil, 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	r.own, r.body = p.times.ownFor(rows), float64(p.times.phi)
	for i, n := range whole(rows, r.shares(rows, pipelined), r.most, p.carry[:len(shares)]) {
		if shares[i].rows = n; n > 0 {
			pieces++
		}
	}
	return shares, pieces
}

// measured notes what a batch took: own the body's own layers, phi its share of Φ.
func (p *pairing) measured(rows, mine int, own, phi time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.times.own[rows]
	if m == nil {
		m = new(mean)
		p.times.own[rows] = m
	}
	m.add(own, 1)
	if mine > 0 {
		p.times.phi.add(phi, mine)
	}
}
