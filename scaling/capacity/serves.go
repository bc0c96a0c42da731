package capacity

import (
	"time"
)

// Rating is what an instance serves with batches of b that take so long; false if
// that is too long.
type Rating func(b int, exec, mean time.Duration) (float64, bool)

// AtRandom rates for requests that come at random, packed for full batches.
func (o Options) AtRandom(slo time.Duration, load, percentile float64) Rating {
	late := Late(percentile)
	return func(b int, exec, mean time.Duration) (float64, bool) { return o.pooled(b, exec, mean, slo, load, late) }
}

// Packed rates where batches are full, and nothing is kept for chance.
func (o Options) Packed(slo time.Duration, load float64) Rating {
	return func(b int, exec, mean time.Duration) (float64, bool) {
		up, _, ok := o.full(b, exec, mean, slo, load)
		return up, ok
	}
}

// jointChoices are the candidates that serve what they do as a part of the
// function's pool. There are none where the SLO leaves no reserve: then what
// meets it at all has to do.
func (o Options) jointChoices(d Demand) []Choice {
	var cs []Choice
	load := Grained(max(d.RPS, d.Load))
	rate := o.AtRandom(d.SLO, load, d.Percentile)
	if d.Crowded {
		rate = o.Packed(d.SLO, load)
	}
	rates := make([]float64, len(d.Configs))
	for i, c := range d.Configs {
		if up, ok := rate(c.Config.Batch, c.Exec, c.Mean); ok {
			rates[i] = up
		}
	}
	for i, c := range d.Configs {
		up := rates[i]
		if up == 0 {
			up = between(c, d.Configs, rate)
		}
		for j, smaller := range d.Configs {
			if up > 0 && smaller.Config.Batch < c.Config.Batch && sameShare(&smaller, &c) {
				up = max(up, rates[j])
			}
		}
		if d.Crowded || sensible(c, up, load) {
			cs = o.choice(cs, c, Range{Up: up})
		}
	}
	return cs
}

// Serves is what an instance that runs, with in, serves: with its full batch or a smaller one
// of which the time is among configs, or between two of them, which is better where
// batches would not fill or take too long; 0 if nothing of that does.
func Serves(in Candidate, configs []Candidate, rate Rating) float64 {
	best, ok := rate(in.Config.Batch, in.Exec, in.Mean)
	if !ok {
		best = between(in, configs, rate)
	}
	return max(best, smaller(in, configs, rate))
}

// smaller is what an instance serves at best with smaller batches of configs than
// its own.
func smaller(in Candidate, configs []Candidate, rate Rating) float64 {
	best := 0.0
	for i := range configs {
		if c := &configs[i]; sameShare(c, &in) && c.Config.Batch < in.Config.Batch {
			if up, ok := rate(c.Config.Batch, c.Exec, c.Mean); ok {
				best = max(best, up)
			}
		}
	}
	return best
}

func sameShare(a, b *Candidate) bool {
	return a.Config.CPU == b.Config.CPU && a.Config.GPU == b.Config.GPU && a.Artefact == b.Artefact
}

// between is what an instance serves with the largest batch that does not take too
// long, where its own does: batches are as large as their deadline allows. Between
// the next smaller batch of configs and its own, times are on a line. If 8 take
// 164 ms and 16 take 284, 10 take 194.
func between(in Candidate, configs []Candidate, rate Rating) float64 {
	config, exec, mean := in.Config, in.Exec, in.Mean
	var below *Candidate
	for i := range configs {
		c := &configs[i]
		if sameShare(c, &in) && c.Config.Batch < config.Batch && (below == nil || c.Config.Batch > below.Config.Batch) {
			below = c
		}
	}
	if below == nil || below.Exec >= exec {
		return 0
	}
	if _, ok := rate(below.Config.Batch, below.Exec, below.Mean); !ok {
		return 0
	}
	for b := config.Batch - 1; b > below.Config.Batch; b-- {
		part := float64(b-below.Config.Batch) / float64(config.Batch-below.Config.Batch)
		line := func(from, to time.Duration) time.Duration { return from + time.Duration(part*float64(to-from)) }
		if up, ok := rate(b, line(below.Exec, exec), line(below.Mean, mean)); ok {
			return up
		}
	}
	return 0
}
