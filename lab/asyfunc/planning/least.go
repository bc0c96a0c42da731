package planning

import (
	"math"
	"sort"

	"github.com/faas-infer/faas-infer/papers/asyfunc/shadow"
)

// Holding is n bodies of a share that carry a rate with batches of up to so many rows.
type Holding struct {
	Bodies, Cores, Rows int
	// Rate is the rate in requests per second that they carry.
	Rate float64
	// Memory is what they take in bytes by the accounting, all on one node.
	Memory int64
}

// late is the part of requests that may be late by chance.
const late = 0.01

// carried is the rate that n instances carry with batches of b rows in t ms, so that a part of
// late requests misses the objective. In heavy traffic the wait for the next free one is
// exponential with the mean t·(c_a² + c_s²)/(2·n·(1−u)) at a utilisation of u (Kingman). Batches
// of b random arrivals have c_a² = 1/b, executions c_s² = 0. The wait is within SLO − t for all
// but that part if 1 − u ≥ ln(1/late)·t/(2·b·n·(SLO−t)). For example b = 2 in 40 ms on n = 2
// with an SLO of 132 ms: 1 − u = 4.6·40/(2·2·2·92) = 0.25, and 75 requests per second of 100.
func (p *Planner) carried(n, b int, t float64) float64 {
	slack := p.Settings.SLO - t
	if slack <= 0 {
		return 0
	}
	u := 1 - math.Log(1/late)*t/(2*float64(b)*float64(n)*slack)
	return max(0, u) * 1000 * float64(b) * float64(n) / t
}

// carries is the rate that n instances with these times carry with their best batch.
func (p *Planner) carries(n int, times []float64) (most float64) {
	for b, t := range times {
		most = max(most, p.carried(n, b+1, t))
	}
	return most
}

// Fit is ours for n bodies: the least rows with which they carry a rate on C_max cores each, and
// then the least cores. Rows cost memory and quotas do not, as they follow the load within
// milliseconds. Rows that cost more memory than a further body are not taken. ok is false if the bodies carry less; C_max and the best rows are returned.
func (p *Planner) Fit(rate float64, n int) (h Holding, ok bool) {
	most := p.Times(p.Settings.MaxCores)
	h = Holding{Bodies: n, Cores: p.Settings.MaxCores}
	for b, t := range most {
		if r := p.carried(n, b+1, t); r > h.Rate && p.pays(&h, b+1, r) {
			h.Rate, h.Rows = r, b+1
			if r >= rate {
				break
			}
		}
	}
	h.Rows = max(1, h.Rows)
	each, weights := p.Memory(h.Rows)
	h.Memory = int64(n) * each
	if p.Settings.Memory == shadow.Shared {
		h.Memory -= int64(n-1) * weights
	}
	if h.Rate < rate || h.Rate == 0 {
		return h, false
	}
	for c := 1; c < p.Settings.MaxCores; c++ {
		if r := p.carries(n, p.Times(c)[:h.Rows]); r >= rate && r > 0 {
			h.Cores, h.Rate = c, r
			break
		}
	}
	return h, true
}

// pays reports whether larger batches, with which n bodies carry r, carry as much more for their
// activations as a further body would for its memory.
func (p *Planner) pays(h *Holding, rows int, r float64) bool {
	if h.Rows == 0 {
		return true
	}
	small, _ := p.Memory(h.Rows)
	large, _ := p.Memory(rows)
	more := float64(h.Bodies) * float64(large-small)
	return (r-h.Rate)*float64(small) >= h.Rate/float64(h.Bodies)*more
}

// Way is a way to give a function more, ours.
type Way struct {
	// Whole is true for a whole instance, false for a shadow; Here for one on the body's node.
	Whole, Here bool
	// Pair is the body with the help; that of a whole instance has all blocks.
	Pair shadow.Pair
	// Node and Cores are the help's.
	Node, Cores int
	// Memory is what it takes in bytes, Ready the time in ms until it answers.
	Memory int64
	Ready  float64
}

// Site is a node as a place for help.
type Site struct {
	Node
	// Index is the node's. Here is true for the body's own.
	Index int
	Here  bool
	// Holds is true if the node has the model's weights already.
	Holds bool
	// Start is the time in ms from the order until an instance can load.
	Start float64
}

// help is what a pair of ours depends on.
type help struct {
	cores  int
	shared bool
	whole  bool
}

// Help lists the ways to start an instance that helps a body of C_max cores: a twin or a shadow
// on its own node, a whole instance or a shadow on another one. The one with the least memory
// that is ready within until ms comes out; if none is, the one that is ready first. Without a
// body that can have a shadow, lone is false. ok is false if no site has room.
func (p *Planner) Help(sites []Site, lone bool, until float64) (best Way, ok bool) {
	inTime := false
	for _, s := range sites {
		for _, whole := range []bool{true, false} {
			w, can := p.way(s, whole)
			if !can || !whole && !lone {
				continue
			}
			now := w.Ready <= until
			better := !ok || now && !inTime || now == inTime && (now && w.Memory < best.Memory || !now && w.Ready < best.Ready)
			if better {
				best, ok, inTime = w, true, now
			}
		}
	}
	return best, ok
}

// way is a whole instance or a shadow at a site.
func (p *Planner) way(s Site, whole bool) (w Way, ok bool) {
	cores := min(p.Settings.MaxCores, s.Cores)
	if cores < 1 {
		return w, false
	}
	shared := p.Settings.Memory == shadow.Shared && s.Holds
	pair := p.helped(help{cores, shared, whole})
	if !pair.Within || pair.Memory == 0 || pair.Memory > s.Memory {
		return w, false
	}
	w = Way{Whole: whole, Here: s.Here, Pair: pair, Node: s.Index, Cores: cores, Memory: pair.Memory, Ready: s.Start}
	if !shared {
		w.Ready += pair.Load
	}
	return w, true
}

// reach is the part of a twin's requests per second that a shadow must serve to be an
// alternative to it.
const reach = 0.9

// helped is a body of C_max cores with a whole instance beside it, or with the shadow of the
// least memory that reaches nearly as much. A pair has time to queue: half of the SLO.
func (p *Planner) helped(h help) shadow.Pair {
	if pair, ok := p.helps[h]; ok {
		return pair
	}
	s := &p.Settings
	o := shadow.Options{
		Body: 1000 * s.MaxCores, Shadow: 1000 * h.cores, MaxRows: s.PairBatch, SLO: s.SLO * 2 / 3, Rho: s.Rho,
		Transfer: s.Transfer, Memory: shadow.Own,
	}
	if h.shared {
		o.Memory = shadow.Shared
	}
	var pair shadow.Pair
	var err error
	if h.whole {
		pair, err = p.Model.Pair(p.Model.All(), 1, o)
	} else {
		o.Partial, o.Reach = true, reach
		var found bool
		if pair, found, err = shadow.Choose(p.Model, o); !found {
			pair.Within = false
		}
	}
	if err != nil {
		pair = shadow.Pair{}
	}
	p.helps[h] = pair
	return pair
}

// Outfit makes the shadow of a way: with the batch that it was chosen for.
func (p *Planner) Outfit(w Way) Shadow {
	s := Shadow{Node: w.Node, Cores: w.Cores, Pair: w.Pair}
	p.outfit(&s, w.Pair.Best.Rows)
	return s
}

// share is a Φ on a body and a shadow with fewer cores.
type share struct {
	phi          string
	body, shadow int
}

// At is a shadow's pair with fewer cores for its body and for itself.
func (p *Planner) At(s *Shadow, body, cores int) Shadow {
	k := share{s.Pair.Phi.String(), body, cores}
	pair, ok := p.shares[k]
	if !ok {
		var err error
		pair, err = p.Model.Pair(s.Pair.Phi, 1, shadow.Options{
			Body: 1000 * body, Shadow: 1000 * cores, MaxRows: p.Settings.PairBatch, SLO: p.Settings.SLO, Rho: p.Settings.Rho, Transfer: p.Settings.Transfer,
		})
		if err != nil {
			return *s
		}
		p.shares[k] = pair
	}
	out := *s
	out.Pair, out.Cores = pair, cores
	return out
}

// Quota is the least number of cores of each body, and at most of each shadow, with which bodies
// with shadows carry a rate. most are the cores that the shadows may have, by body. ok is false
// if they carry less; C_max is returned.
func (p *Planner) Quota(rate float64, bodies []*Body, most func(*Shadow) int) (cores int, ok bool) {
	cores = 1 + sort.Search(p.Settings.MaxCores, func(i int) bool {
		trial := make([]*Body, len(bodies))
		for k, b := range bodies {
			trial[k] = &Body{Cores: i + 1}
			if b.Shadow != nil {
				s := p.At(b.Shadow, i+1, min(i+1, most(b.Shadow)))
				trial[k].Shadow = &s
			}
		}
		return p.Paired(trial) >= rate
	})
	return min(cores, p.Settings.MaxCores), cores <= p.Settings.MaxCores
}

// Paired is the rate that bodies carry in time with their shadows. A pipelined pair counts as two.
func (p *Planner) Paired(bodies []*Body) (sum float64) {
	units := 0
	for _, b := range bodies {
		units++
		if b.Shadow != nil {
			if n, _ := b.Shadow.Streams(); n == 2 {
				units++
			}
		}
	}
	for _, b := range bodies {
		n, times := 1, p.Times(b.Cores)
		if b.Shadow != nil {
			n, times = b.Shadow.Streams()
		}
		sum += float64(n) * p.carries(units, times) / float64(units)
	}
	return sum
}
