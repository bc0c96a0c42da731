// Package correction corrects a function's predicted batch times by the times that its
// instances really take (INFless §3.3 adds a fixed 10 % instead: "increase the prediction
// offset by 10%"). It compares executions with the prediction without its margin. It
// multiplies the prediction by a factor such that a given quantile of the executions, not
// their mean, stays below. The package has no clock, and serves one caller at a time.
// Begin with [New], [Correction.Observe] and [Correction.Update].
//
// The margin begins as the prediction's own and shrinks with the evidence. The rest of it
// is what the binomial confidence bound of that quantile still needs ([ranks]). Evidence
// is kept by share of CPU and GPU and by class of batch sizes (1, 2, 3–4, 5–8, …).
//
// A class with little evidence of its own borrows from the other classes of its share. A
// share borrows from other shares only evidence that is slower than predicted: a model
// that is slower than predicted on one share is probably slower on the next, but what it is
// on the CPU says nothing of a GPU. The rest counts as executions that took the predicted
// time.
//
// The instance's work outside the engine, mostly reading JSON, grows with the requests and
// not with the engine's time. So a factor of small batches says nothing about large ones.
// This work is learned separately and is a part of the prediction (beside.go).
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
	// Share is that of the instance's config, Batch the requests in the batch.
	profiler.Share
	Batch int
	// Elements is the mean number of elements of a row's inputs, 0 if it is not known or if all
	// rows have the same.
	Elements int64
	// Exec is the time of the exchange with the instance. Beside is the CPU time that
	// the instance used outside the engine, 0 if unknown.
	Exec, Beside time.Duration
}

// Correction holds the evidence of one function and the factors that follow from it.
type Correction struct {
	// base is the profile as it was found. profile and bare are those of the size that requests
	// have, with and without margins.
	base    *profiler.Profile
	profile *profiler.Profile
	bare    *profiler.Profile
	seen    sizes
	// limit and widest are those of SetObjective.
	limit    time.Duration
	widest   profiler.Share
	id       string
	quantile float64
	shares   map[profiler.Share]*share
	beside   beside
	// now is the latest time that a caller passed.
	now time.Time
	// pool is the memory in which evidence is combined.
	pool counts
}

// share holds the evidence of one share of a machine.
type share struct {
	profiler.Share
	// predicted[b-1] is the prediction without its margin, cautious[b-1] the
	// prediction with it.
	predicted, cautious []time.Duration
	// classes are the classes of batches of 1, 2, 3–4, 5–8, ….
	classes []class
	// took and expected are the times of the latest executions and their predictions, in seconds.
	took, expected float64
}

// class holds the evidence of some batch sizes on one share.
type class struct {
	evidence
	// factor multiplies the prediction; 0 while the prediction's own margin
	// applies.
	factor float64
}

// classOf is the index of a batch size's class.
func classOf(batch int) int { return bits.Len(uint(batch - 1)) }

// New corrects the times of p such that the given part of the executions takes no longer:
// 0.95 is the 95th percentile. It begins without evidence, with p's own times.
func New(p *profiler.Profile, quantile float64) *Correction {
	c := &Correction{base: p, profile: p, id: Fingerprint(p), shares: map[profiler.Share]*share{}}
	c.setBeside(expected(p))
	c.SetObjective(quantile, 0, profiler.Share{})
	return c
}

// SetObjective changes the part of the executions that must take no longer than the
// corrected times. It keeps the evidence. The quantile is limited to [0.5, 0.999]. A request is in time
// if one row takes at most limit on the widest share of an instance. If limit is 0, none is too long.
func (c *Correction) SetObjective(quantile float64, limit time.Duration, widest profiler.Share) {
	c.quantile, c.limit, c.widest = max(0.5, min(0.999, quantile)), limit, widest
}

// Profile is the corrected profile, with the instances' time outside the engine. When
// [Correction.Update] finds that this time has changed, Profile becomes a new one.
func (c *Correction) Profile() *profiler.Profile { return c.profile }

// Of is the [Fingerprint] of the profile that is corrected.
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

// share returns the evidence of a share, and adds a new share. Evidence of other shares
// counts for a new one at once.
func (c *Correction) share(of profiler.Share) *share {
	s, ok := c.shares[of]
	if !ok {
		largest := c.profile.MaxBatch()
		s = &share{Share: of, predicted: c.bare.Table(largest, of), cautious: c.profile.Table(largest, of)}
		if n := len(s.predicted); n > 0 {
			s.classes = make([]class, classOf(n)+1)
		}
		c.shares[of] = s
		c.update(s)
	}
	return s
}

// sorted lists the shares in order, so sums do not depend on a map's order.
func (c *Correction) sorted() []*share {
	return slices.SortedFunc(maps.Values(c.shares), func(a, b *share) int {
		return cmp.Or(cmp.Compare(a.GPU, b.GPU), cmp.Compare(a.CPU, b.CPU))
	})
}

// narrowest and widest are the minimum and the maximum of [Correction.window].
const narrowest, widest = 300, 1500

// window is the maximum number of executions that count: enough for fifteen above the
// quantile.
func (c *Correction) window() float64 { return max(narrowest, min(widest, 15/(1-c.quantile))) }

// Observe adds the executions up to now. It ignores batches that the profile does not
// cover, and times that are not positive.
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
		if class := classOfSize(c.base.BySize, o.Elements); class > 0 {
			c.seen.observe(class)
		}
		s := c.shares[o.Share]
		k.counts[bucket(s.ratio(o, c.Normal(o), c.window()))] += weights[k]
		s.given(k, weights[k])
	}
}

// ratio returns what an execution says of one with rows of the planned size, over the predicted time: normal is its own
// time converted to that size. A slow machine makes all sizes slower by the same factor, and this is the mean. What is
// above the mean is a delay, which is as long for any size: one of 5 ms doubles the 5 ms of a short text, and adds a
// seventh to the 35 ms of a long one. Before this, short texts on a busy machine made long ones hopeless.
func (s *share) ratio(o Observation, normal time.Duration, window float64) float64 {
	ratio := float64(normal) / float64(s.predicted[o.Batch-1])
	larger := float64(normal) / float64(o.Exec) // By this factor takes the planned size longer.
	keep := 1 - 1/window
	s.took, s.expected = keep*s.took+o.Exec.Seconds(), keep*s.expected+o.Exec.Seconds()/ratio
	mean := s.took / s.expected
	return mean + (ratio-mean)/max(1, larger)
}

// given records for the other classes that one class got evidence.
func (s *share) given(to *class, weight float64) {
	for i := range s.classes {
		s.classes[i].since += weight
	}
	to.since = 0
}

func (c *Correction) class(o Observation) *class {
	if o.CPU < 1 || o.Batch < 1 || o.Exec <= 0 {
		return nil
	}
	s := c.share(o.Share)
	if o.Batch > len(s.predicted) {
		return nil
	}
	return &s.classes[classOf(o.Batch)]
}

// ExecTime is the corrected [profiler.Profile.ExecTime]. It never decreases with
// the batch.
func (c *Correction) ExecTime(batch int, on profiler.Share) (time.Duration, bool) {
	if batch < 1 || on.CPU < 1 {
		return 0, false
	}
	s := c.share(on)
	if batch > len(s.predicted) {
		return 0, false
	}
	table := s.table(batch)
	return table[batch-1], true
}

// Table lists ExecTime for b = 1…maxBatch. It is shorter if the profile ends before.
func (c *Correction) Table(maxBatch int, on profiler.Share) []time.Duration {
	if on.CPU < 1 {
		return nil
	}
	s := c.share(on)
	return s.table(min(maxBatch, len(s.predicted)))
}

// Expected lists the predicted times without margins, with which executions are compared, of batches of 1…maxBatch. It is
// shorter if the profile ends before. The caller must not change it.
func (c *Correction) Expected(maxBatch int, on profiler.Share) []time.Duration {
	if on.CPU < 1 {
		return nil
	}
	predicted := c.share(on).predicted
	return predicted[:min(max(0, maxBatch), len(predicted))]
}

// longest is the maximum of a corrected time.
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

// Correct gives candidates of [Correction.Profile] corrected times, in place, and returns
// them.
func (c *Correction) Correct(candidates []profiler.Candidate) []profiler.Candidate {
	tables := map[profiler.Share][]time.Duration{}
	for i, x := range candidates {
		if tables[x.Share] == nil {
			tables[x.Share] = c.Table(c.profile.MaxBatch(), x.Share)
		}
		candidates[i].Exec = tables[x.Share][x.Batch-1]
	}
	return candidates
}

// Ratio is the quantile of measured over predicted times on a share, over all its batch
// sizes. It is false with too few executions.
func (c *Correction) Ratio(on profiler.Share) (float64, bool) {
	s, ok := c.shares[on]
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
