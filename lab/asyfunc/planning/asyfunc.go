// Package planning decides how many bodies and shadows a function has (AsyFunc, SoCC 2023, §4).
// A body is an instance with the whole model; a shadow holds some of its blocks and helps one
// body. Algorithm 1 starts and stops bodies each period, from a predicted rate; Algorithm 2
// pairs them with shadows at once, from the instantaneous rate. Package shadow chooses the
// blocks. Beside the paper's algorithms stands ours ([Planner.Fit], [Planner.Help]).
//
// The package is pure. Begin with [Planner].
package planning

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/papers/asyfunc/shadow"
)

// Settings are what the paper's evaluation fixes (§7.1).
type Settings struct {
	// MaxCores is C_max, MaxBatch B_max. PairBatch is the largest batch of a pair: B_max
	// binds pairs, too, as printed, so the largest bodies would gain nothing.
	MaxCores, MaxBatch, PairBatch int
	// Alpha and Beta bound the part of R_max that the rate may be (§4.1); above Gamma·R_max
	// an instantaneous rate is a burst.
	Alpha, Beta, Gamma float64
	// Rho is the price of a GiB in cores.
	Rho float64
	// SLO is t_SLO in ms.
	SLO float64
	// KeepAlive is how long a shadow stays after it was last needed.
	KeepAlive time.Duration
	// Transfer is the way between a body and its shadow.
	Transfer shadow.Transfer
	// Memory says whether the instances of a node share weights. Only [Planner.Least]
	// reads it; the paper's algorithms count weights for each instance.
	Memory shadow.Accounting
}

// Published are the paper's settings. γ has no value there; it is 1. Rho is the cores of a node
// of Table 1 over its memory. The keep-alive is not printed; it is a second.
func Published(slo float64) Settings {
	const cores, gib = 26, 96e9 / (1 << 30)
	return Settings{
		MaxCores: 16, MaxBatch: 8, PairBatch: 16, Alpha: 0.8, Beta: 0.6, Gamma: 1, Rho: cores / gib, SLO: slo,
		KeepAlive: time.Second, Transfer: shadow.Transfer{PerMiB: 0.5 * (1 << 20) / 1e6}, Memory: shadow.Own,
	}
}

func (s *Settings) check() error {
	switch {
	case s.MaxCores < 1 || s.MaxBatch < 1 || s.PairBatch < s.MaxBatch:
		return fmt.Errorf("max_cores is %d, max_batch %d and pair_batch %d: the first two must be at least 1, the last at least max_batch", s.MaxCores, s.MaxBatch, s.PairBatch)
	case !(s.Alpha > 0 && s.Alpha <= 1) || !(s.Beta >= 0 && s.Beta <= s.Alpha) || !(s.Gamma > 0):
		return fmt.Errorf("alpha is %g, beta %g and gamma %g: they must be 0 ≤ beta ≤ alpha ≤ 1, and alpha and gamma above 0", s.Alpha, s.Beta, s.Gamma)
	case !(s.SLO > 0) || !(s.Rho >= 0) || s.KeepAlive < 0:
		return fmt.Errorf("slo is %g, rho %g and keep_alive %v: an objective must be above 0, the others not below", s.SLO, s.Rho, s.KeepAlive)
	}
	return nil
}

// Node is a worker node.
type Node struct {
	// Cores and Memory, in bytes, are free.
	Cores  int
	Memory int64
}

// Body is an instance with the whole model.
type Body struct {
	ID int
	// Node is the index of its node, Cores its share.
	Node, Cores int
	// Shadow is its partner, nil if it has none.
	Shadow *Shadow
}

// Shadow is the partner of a body.
type Shadow struct {
	ID, Node, Cores int
	// Pair has Φ and the times. Rows is the largest batch.
	Pair shadow.Pair
	Rows int
	// Memory is what it takes in bytes with its own weights. Body are the activations of its
	// body, which computes the other blocks for all rows.
	Memory, Body int64
	// Eta is its resource efficiency when it was chosen. Needed is when it was last
	// needed; [Planner.Release] keeps it.
	Eta    float64
	Needed time.Duration
}

// Planner decides for one function. It remembers what it calculated for each share, so it is
// quick to ask again. It is not safe for concurrent use.
type Planner struct {
	Model    *shadow.Model
	Settings Settings
	alone    map[int][]float64
	pairs    map[key]choice
	helps    map[help]shadow.Pair
	shares   map[share]shadow.Pair
}

// NewPlanner returns a planner. The error names a setting, or a field of the model, that is
// wrong.
func NewPlanner(m *shadow.Model, s Settings) (*Planner, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	if err := m.Check(); err != nil {
		return nil, err
	}
	return &Planner{Model: m, Settings: s, alone: map[int][]float64{}, pairs: map[key]choice{}, helps: map[help]shadow.Pair{}, shares: map[share]shadow.Pair{}}, nil
}

// Times are t_l of batches of 1 to B_max on a body with so many cores, in ms.
func (p *Planner) Times(cores int) []float64 {
	if t, ok := p.alone[cores]; ok {
		return t
	}
	t := make([]float64, p.Settings.MaxBatch)
	for b := range t {
		t[b] = p.Model.Time(0, len(p.Model.Blocks), b+1, 1000*cores)
	}
	p.alone[cores] = rising(t)
	return p.alone[cores]
}

// rising lowers times to that of a larger batch, if that is shorter.
func rising(t []float64) []float64 {
	for b := len(t) - 2; b >= 0; b-- {
		t[b] = min(t[b], t[b+1])
	}
	return t
}

// Times are t_l of a pair's batches in ms.
func (s *Shadow) Times() []float64 {
	_, times := s.Streams()
	return times
}

// Streams are how a pair executes, as [shadow.Pair.Streams], for batches of up to Rows.
func (s *Shadow) Streams() (streams int, times []float64) {
	pair := s.Pair
	pair.Splits = pair.Splits[:s.Rows]
	return pair.Streams()
}

// outfit sets the largest batch of a pair and the memory for it. The shadow holds the rows that
// it is sent, the body all rows of the other blocks.
func (p *Planner) outfit(s *Shadow, rows int) {
	split := &s.Pair.Splits[rows-1]
	sent := int64(rows - split.Body)
	s.Rows, s.Body = rows, 0
	in := make([]bool, len(p.Model.Blocks))
	for _, r := range s.Pair.Phi {
		for i := r.First; i < r.End; i++ {
			in[i] = true
		}
	}
	for i, b := range p.Model.Blocks {
		if in[i] {
			s.Body = max(s.Body, b.Activations*int64(split.Body))
		} else {
			s.Body = max(s.Body, b.Activations*int64(rows))
		}
	}
	s.Memory = p.Model.Own + p.Model.Weights(s.Pair.Phi) + sent*p.Model.Activations(s.Pair.Phi)
}

// Batch is the largest batch within the SLO, at least 1.
func (p *Planner) Batch(times []float64) int {
	for b := len(times); b > 1; b-- {
		if times[b-1] <= p.Settings.SLO {
			return b
		}
	}
	return 1
}

// rate is max{b/t_l | t_l ≤ t_SLO} in requests per second (Eq. 1), 0 if none is within it.
func (p *Planner) rate(times []float64) (most float64) {
	for b, t := range times {
		if t <= p.Settings.SLO {
			most = max(most, 1000*float64(b+1)/t)
		}
	}
	return most
}

// Rate is R_max of a body, with its shadow if it has one.
func (p *Planner) Rate(b *Body) float64 {
	alone := p.rate(p.Times(b.Cores))
	if b.Shadow == nil {
		return alone
	}
	return max(alone, p.rate(b.Shadow.Times()))
}

// Max is R_max of all bodies (Eq. 1).
func (p *Planner) Max(bodies []*Body) (sum float64) {
	for _, b := range bodies {
		sum += p.Rate(b)
	}
	return sum
}

// Memory is what an instance of the whole model takes in bytes with weights of its own, for
// batches of that many rows. weights are the part of them that sharing saves.
func (p *Planner) Memory(rows int) (all, weights int64) {
	whole := p.Model.All()
	weights = p.Model.Weights(whole)
	return p.Model.Own + weights + int64(rows)*p.Model.Activations(whole), weights
}

// gib is a memory in GiB.
func gib(n int64) float64 { return float64(n) / (1 << 30) }

// efficiency is η of a batch of rows on c cores with so many bytes: requests per ms and core,
// plus those per ms and the price of the memory.
func (p *Planner) efficiency(rows, cores int, memory int64, ms float64) float64 {
	eta := float64(rows) / (float64(cores) * ms)
	if price := p.Settings.Rho * gib(memory); price > 0 {
		eta += float64(rows) / (price * ms)
	}
	return eta
}

// roomiest is the node with the most free cores, -1 if none has memory.
func roomiest(nodes []Node, memory int64) int {
	best := -1
	for i, n := range nodes {
		if n.Cores > 0 && n.Memory >= memory && (best < 0 || n.Cores > nodes[best].Cores) {
			best = i
		}
	}
	return best
}

// Predictor predicts a period's rate in requests per second from those of the periods before,
// the latest last.
type Predictor func(past []float64) float64

// LastValue predicts the last period's rate (§2.1, LV).
func LastValue(past []float64) float64 {
	if len(past) == 0 {
		return 0
	}
	return past[len(past)-1]
}

// Recent predicts ours: the mean of the last six periods and one standard deviation, or the last
// value if that is higher. For example 40, 40, 60, 60 gives 50 + 10 = 60.
func Recent(past []float64) float64 {
	const periods = 6
	past = past[max(0, len(past)-periods):]
	if len(past) == 0 {
		return 0
	}
	sum, squares := 0.0, 0.0
	for _, r := range past {
		sum += r
		squares += r * r
	}
	mean := sum / float64(len(past))
	return max(LastValue(past), mean+math.Sqrt(max(0, squares/float64(len(past))-mean*mean)))
}

// byID orders bodies of equal rank.
func byID(bodies []*Body, rank func(b *Body) float64) []*Body {
	out := slices.Clone(bodies)
	slices.SortStableFunc(out, func(a, b *Body) int {
		switch x, y := rank(a), rank(b); {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return a.ID - b.ID
	})
	return out
}
