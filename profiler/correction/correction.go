// Package correction corrects a function's predicted batch times by what its
// instances really take (INFless §3.3 leaves a fixed 10 % instead: "increase
// the prediction offset by 10%"). Executions are compared with the prediction
// without its margin; the factor by which the prediction is to be multiplied is
// such that a given quantile of the executions, not their mean, stays below.
//
// The margin begins as the prediction's own and shrinks with the evidence: what
// is left of it is what the binomial confidence bound of that quantile still
// needs ([ranks]). Evidence is kept by CPU share and by class of batch sizes
// (1, 2, 3–4, 5–8, …). A class with little of its own borrows from the others of
// its share, a share from others what these say against the model: one that is
// slower than predicted on one share is not taken to be as fast as predicted on
// the next. The rest counts as executions that went as predicted.
//
// What the instance does beside the engine, reading JSON above all, grows with the requests
// and not with the engine's time, so that no factor of small batches tells of large ones. It
// is learned by itself and a part of the prediction (beside.go).
//
// The package is pure: it is told the time, and serves one caller at a time.
package correction

import (
	"cmp"
	"maps"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/profiler"
)

// Observation is one batch that an instance has executed.
type Observation struct {
	// Millicores is the CPU share of the instance's config, Batch the requests
	// in the batch.
	Millicores, Batch int
	// Exec is how long the exchange with the instance took, Beside the CPU time that the
	// instance used beside the engine; 0 if that is not known.
	Exec, Beside time.Duration
}

// Correction holds the evidence of one function, and what follows from it.
type Correction struct {
	profile  *profiler.Profile
	bare     *profiler.Profile
	id       string
	quantile float64
	shares   map[int]*share
	beside   beside
	// now is the latest time that it was told.
	now time.Time
	// pool is where evidence is put together.
	pool counts
}

// share is what is known of one CPU share.
type share struct {
	millicores int
	// predicted[b-1] is the prediction without its margin, cautious[b-1] the
	// one with it.
	predicted, cautious []time.Duration
	// classes are those of batches of 1, 2, 3–4, 5–8, ….
	classes []class
}

// class is what is known of some batch sizes on one share.
type class struct {
	evidence
	// factor is what the prediction is multiplied by; 0 as long as the
	// prediction's own margin holds.
	factor float64
}

// classOf is the class of a batch size.
func classOf(batch int) int { return bits.Len(uint(batch - 1)) }

// New corrects the times of p, so that so much of the executions, 0.95 for the
// 95th percentile, take no longer than is said. It begins without evidence:
// the times are p's own.
func New(p *profiler.Profile, quantile float64) *Correction {
	c := &Correction{profile: p, id: Fingerprint(p), shares: map[int]*share{}}
	c.reckon(expected(p))
	c.SetQuantile(quantile)
	return c
}

// SetQuantile changes which part of the executions is to take no longer than is
// said; the evidence stays. Below one half and above 0.999 it is one of these.
func (c *Correction) SetQuantile(quantile float64) { c.quantile = max(0.5, min(0.999, quantile)) }

// Profile is the profile that is corrected, with what instances use beside the engine. It
// is another one after [Correction.Update] has found that to have changed.
func (c *Correction) Profile() *profiler.Profile { return c.profile }

// Of tells the [Fingerprint] of the profile that is corrected.
func (c *Correction) Of() string { return c.id }

// bare is the profile without its margins.
func bare(p *profiler.Profile) *profiler.Profile {
	out := *p
	out.Measurements = slices.Clone(p.Measurements)
	for i := range out.Measurements {
		m := &out.Measurements[i]
		margin := m.Margin
		if margin <= 0 {
			margin = profiler.Margin
		}
		m.Median, m.P95, m.CPU = m.Median/(1+margin), m.P95/(1+margin), m.CPU/(1+margin)
	}
	return &out
}

// share returns what is known of a CPU share, from now on. What other shares
// have seen counts for it at once.
func (c *Correction) share(millicores int) *share {
	s, ok := c.shares[millicores]
	if !ok {
		largest := c.profile.MaxBatch()
		s = &share{millicores: millicores, predicted: c.bare.Table(largest, millicores), cautious: c.profile.Table(largest, millicores)}
		if n := len(s.predicted); n > 0 {
			s.classes = make([]class, classOf(n)+1)
		}
		c.shares[millicores] = s
		c.update(s)
	}
	return s
}

// sorted lists the shares, so that sums do not depend on a map's order.
func (c *Correction) sorted() []*share {
	return slices.SortedFunc(maps.Values(c.shares), func(a, b *share) int { return cmp.Compare(a.millicores, b.millicores) })
}

// narrowest and widest bound how many executions count.
const narrowest, widest = 300, 1500

// window is how many executions count at most: enough for fifteen above the
// quantile, some hundred at least.
func (c *Correction) window() float64 { return max(narrowest, min(widest, 15/(1-c.quantile))) }

// Observe takes in what was executed up to now. Batches of which the profile
// says nothing, and times that are none, do not count.
func (c *Correction) Observe(now time.Time, seen []Observation) {
	if now.After(c.now) {
		c.now = now
	}
	for _, o := range seen {
		if k := c.class(o); k != nil {
			k.arriving++
		}
	}
	weights := map[*class]float64{}
	for _, o := range seen {
		k := c.class(o)
		if k == nil {
			continue
		}
		if k.arriving > 0 {
			weights[k] = k.admit(c.now, c.window())
		}
		if o.Beside > 0 {
			c.beside.observe(o.Batch, o.Beside)
		}
		ratio := float64(o.Exec) / float64(c.shares[o.Millicores].predicted[o.Batch-1])
		k.counts[bucket(ratio)] += weights[k]
		c.shares[o.Millicores].given(k, weights[k])
	}
}

// given notes for the other classes that one was given evidence.
func (s *share) given(to *class, weight float64) {
	for i := range s.classes {
		s.classes[i].since += weight
	}
	to.since = 0
}

func (c *Correction) class(o Observation) *class {
	if o.Millicores < 1 || o.Batch < 1 || o.Exec <= 0 {
		return nil
	}
	s := c.share(o.Millicores)
	if o.Batch > len(s.predicted) {
		return nil
	}
	return &s.classes[classOf(o.Batch)]
}

// ExecTime is the corrected [profiler.Profile.ExecTime]. It never decreases with
// the batch.
func (c *Correction) ExecTime(batch, millicores int) (time.Duration, bool) {
	if batch < 1 || millicores < 1 {
		return 0, false
	}
	s := c.share(millicores)
	if batch > len(s.predicted) {
		return 0, false
	}
	table := s.table(batch)
	return table[batch-1], true
}

// Table lists ExecTime for b = 1…maxBatch; it is shorter where the profile ends
// before.
func (c *Correction) Table(maxBatch, millicores int) []time.Duration {
	if millicores < 1 {
		return nil
	}
	s := c.share(millicores)
	return s.table(min(maxBatch, len(s.predicted)))
}

// longest bounds a corrected time.
const longest = time.Hour

func (s *share) table(n int) []time.Duration {
	var table []time.Duration
	last := time.Duration(0)
	for b := 1; b <= n; b++ {
		t := s.cautious[b-1]
		if f := s.classes[classOf(b)].factor; f > 0 {
			t = time.Duration(min(float64(longest), f*float64(s.predicted[b-1])))
		}
		last = max(last, t, 1)
		table = append(table, last)
	}
	return table
}

// Candidates is [profiler.Profile.Candidates] with corrected times.
func (c *Correction) Candidates(shares []int, maxBatch int, memory int64) []profiler.Candidate {
	candidates := c.profile.Candidates(shares, maxBatch, memory)
	tables := map[int][]time.Duration{}
	for i, x := range candidates {
		if tables[x.CPU] == nil {
			tables[x.CPU] = c.Table(maxBatch, x.CPU)
		}
		candidates[i].Exec = tables[x.CPU][x.Batch-1]
	}
	return candidates
}

// Ratio is the quantile of measured over predicted times on a CPU share, all its
// batch sizes together; false without a few executions.
func (c *Correction) Ratio(millicores int) (float64, bool) {
	s, ok := c.shares[millicores]
	if !ok {
		return 0, false
	}
	var all counts
	for i := range s.classes {
		all.add(s.classes[i].counts, s.classes[i].fade(c.now))
	}
	total := all.total()
	if total < few {
		return 0, false
	}
	middle := all.top((1 - c.quantile) * total)
	return math.Sqrt(edge(middle) * edge(middle+1)), true
}
