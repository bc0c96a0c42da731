package capacity

import (
	"slices"
	"time"
)

// Rating returns the rate that an instance serves with batches of b and these times, one at a
// time. It returns false if they are too long. An instance that executes k batches at the same
// time serves k times the rate: to the pool it is k instances. If Crew demands 5 instances with
// t(8) = 50 ms for 500/s, each serves 100/s, and two with a concurrency of 3 serve 600/s.
type Rating func(b int, exec, mean time.Duration) (float64, bool)

// AtRandom returns the Rating for requests that come at random.
func (o Options) AtRandom(slo time.Duration, load, percentile float64) Rating {
	late := Late(percentile)
	return func(b int, exec, mean time.Duration) (float64, bool) { return o.pooled(b, exec, mean, slo, load, late) }
}

// Packed returns the Rating for full batches, without room for chance.
func (o Options) Packed(slo time.Duration, load float64) Rating {
	return func(b int, exec, mean time.Duration) (float64, bool) {
		up, _, ok := o.full(b, exec, mean, slo, load)
		return up, ok
	}
}

// jointChoices returns the candidates with the rates that they serve as a part of the function's
// pool. There are none if the SLO leaves no reserve; [Options.Choices] then takes the candidates
// that meet the SLO.
func (o Options) jointChoices(d Demand) []Choice {
	var cs []Choice
	load := Grained(max(d.RPS, d.Load))
	rate := o.AtRandom(d.SLO, load, d.Percentile)
	if d.Crowded {
		rate = o.Packed(d.SLO, load)
	}
	usual := slices.ContainsFunc(d.Configs, func(c Candidate) bool { return !small(c) })
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
		if usual && small(c) && up < load {
			continue
		}
		if d.Crowded || sensible(c, up, load) {
			cs = o.choice(cs, c, Range{Up: up}.times(c.Config.Streams()))
		}
	}
	return cs
}

// smallShare is the CPU share in millicores below which an instance is planned only if it carries all load.
const smallShare = 250

// small reports whether a candidate has a small share. Its quota pauses it for most of the time, so a batch takes several
// times as long as on a quarter of a core, and requests that come upon another one miss the objective first. That is no
// matter where requests are rare. As one of several instances of a busy function it would save little: others execute
// batches for less CPU.
func small(c Candidate) bool { return c.Config.GPU == 0 && c.Config.CPU < smallShare }

// Serves is the rate of an instance that runs with in: with its full batch, with a smaller batch
// of configs, or with a batch between two of them. A smaller batch is better if full ones would
// not fill or take too long. It is 0 if no batch is in time.
func Serves(in Candidate, configs []Candidate, rate Rating) float64 {
	best, ok := rate(in.Config.Batch, in.Exec, in.Mean)
	if !ok {
		best = between(in, configs, rate)
	}
	return float64(in.Config.Streams()) * max(best, smaller(in, configs, rate))
}

// smaller is the highest rate of an instance with batches of configs that are smaller than its
// own.
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
	return a.Config.CPU == b.Config.CPU && a.Config.GPU == b.Config.GPU && a.Config.Streams() == b.Config.Streams() &&
		a.Config.Members() == b.Config.Members() && a.Config.Apart == b.Config.Apart && a.Artefact == b.Artefact
}

// between is the rate of an instance whose full batch takes too long, with the largest batch that
// does not: batches are as large as their deadline allows. Times between its own batch and the
// next smaller one of configs are interpolated. If 8 take 164 ms and 16 take 284 ms, 10 take
// 194 ms.
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
