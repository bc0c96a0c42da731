package control

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/shadow"
)

// This file chooses the parts of shadows, by the measure of the engine that starts them.

const (
	// pairReach is the part of the requests per second of two whole instances that a pair should
	// have, and pairGain that by which it must exceed those of one.
	pairReach, pairGain = 0.9, 1.1
	// maxPairBatch is the largest batch of a pair.
	maxPairBatch = 16
	// shadowMargin is how much more memory a shadow gets than its part needs, leastShadow its
	// least memory in bytes.
	shadowMargin, leastShadow = 2, 128 << 20
)

// division is a way to help instances of an artefact with a share.
type division struct {
	cpu    int
	part   string
	config cluster.Config
	pair   shadow.Pair
	// streams and times are the pair's, alone the times of the body without a shadow, in ms.
	streams      int
	times, alone []float64
	// whole is what a whole instance takes, own what the shadow does, without the time to start a
	// process.
	whole, own scaling.Footprint
}

// partOf is Φ as instances read it.
func partOf(p shadow.Phi) string {
	runs := make([]string, len(p))
	for i, r := range p {
		runs[i] = fmt.Sprintf("%d:%d", r.First, r.End)
	}
	return strings.Join(runs, ",")
}

// divider chooses parts for a function's instances.
type divider struct {
	model *shadow.Model
	// planned has the function's objective, percentile, queue and configs as the engine plans with
	// them; limits are the engine's options.
	planned scaling.Function
	limits  capacity.Options
	// transfer is the time of tensors between a body and its shadow.
	transfer shadow.Transfer
}

// divide chooses a part for each share of cores on which an artefact may run. It leaves out shares
// for which a pair gains too little.
func (x *divider) divide() (all []division, err error) {
	for _, c := range x.planned.Configs {
		if c.Config.GPU > 0 || c.Config.Members() > 1 || slices.ContainsFunc(all, func(d division) bool { return d.cpu == c.Config.CPU }) {
			continue
		}
		d, gains, err := x.on(c.Config.CPU)
		if err != nil {
			return nil, err
		}
		if gains {
			all = append(all, d)
		}
	}
	return all, nil
}

// on is divide for one share. The choice by [shadow.Choose] does not know what the engine keeps for
// chance and for the way, so the first that gains by the engine's measure is taken: the least memory
// that reaches enough, otherwise the most requests for the cores, and then both again within shorter
// times.
func (x *divider) on(cpu int) (d division, gains bool, err error) {
	largest := 1
	for _, c := range x.planned.Configs {
		if onCores(&c, cpu) {
			largest = max(largest, c.Config.Batch)
		}
	}
	o := shadow.Options{Body: cpu, Shadow: cpu, MaxRows: min(largest, maxPairBatch), Transfer: x.transfer, Partial: true}
	for _, part := range []float64{1, 0.7, 0.5} {
		for _, reach := range []float64{pairReach, 0} {
			o.Reach, o.SLO = reach, part*float64(x.planned.SLO)/float64(time.Millisecond)
			p, found, err := shadow.Choose(x.model, o)
			if err != nil {
				return d, false, err
			}
			if len(p.Phi) == 0 || !p.Within || reach > 0 && !found {
				continue
			}
			if d = x.division(cpu, o.MaxRows, p); x.gains(&d) {
				return d, true, nil
			}
		}
		if x.planned.SLO == 0 {
			break
		}
	}
	return d, false, nil
}

// division is what follows from a pair.
func (x *divider) division(cpu, largest int, p shadow.Pair) division {
	d := division{cpu: cpu, part: partOf(p.Phi), pair: p}
	d.streams, d.times = p.Streams()
	for b := range d.times {
		d.alone = append(d.alone, x.model.Time(0, len(x.model.Blocks), b+1, cpu))
	}
	d.config = cluster.Config{Batch: largest, Resources: cluster.Resources{CPU: cpu}}
	d.own, d.whole = x.footprint(p.Phi, largest), x.footprint(x.model.All(), largest)
	d.config.Memory = max(leastShadow, shadowMargin*(d.own.Own+d.own.Weights))
	return d
}

// footprint is what an instance with some blocks takes for batches of up to largest.
func (x *divider) footprint(phi shadow.Phi, largest int) scaling.Footprint {
	m := x.model
	return scaling.Footprint{
		Own: m.Own + int64(largest)*m.Activations(phi), Weights: m.Weights(phi), Loading: time.Duration(m.Load(phi) * float64(time.Millisecond)),
	}
}

// gains reports whether instances serve enough more with such a shadow, at the load that fills one
// alone.
func (x *divider) gains(d *division) bool {
	pairing, f := scaling.Pairing{Pair: d.candidates(x.planned.Configs)}, x.planned
	var best capacity.Candidate
	for _, c := range f.Configs {
		if onCores(&c, d.cpu) && c.Exec > 0 {
			if up := float64(c.Config.Batch) / c.Exec.Seconds(); up > f.Rate {
				best, f.Rate = c, up
			}
		}
	}
	alone, pair := pairing.Rates(x.limits, &f, best)
	return pair > 0 && pair >= pairGain*alone
}

// onCores reports whether a candidate is that of one instance with a share of cores.
func onCores(c *capacity.Candidate, cpu int) bool {
	return c.Config.CPU == cpu && c.Config.GPU == 0 && c.Config.Members() == 1
}

// candidates are the pair's, of the body's own: with their times, changed as the layer profile says.
// The body's times are corrected by what it executes; the layers' are not.
func (d *division) candidates(alone []capacity.Candidate) (all []capacity.Candidate) {
	for _, c := range alone {
		if b := c.Config.Batch; onCores(&c, d.cpu) && b <= len(d.times) {
			ratio := d.times[b-1] / d.alone[b-1]
			all = append(all, capacity.Candidate{
				Artefact: c.Artefact, Exec: time.Duration(ratio * float64(c.Exec)), Mean: time.Duration(ratio * float64(c.Mean)),
				Config: cluster.Config{Batch: b, Concurrency: d.streams, Resources: cluster.Resources{CPU: d.cpu}},
			})
		}
	}
	return all
}

// table lists the times of a pair's batches of 1, 2, … requests: those of the body alone, changed as
// the layer profile says. The body's times are corrected by what it executes; the layers' are not.
func (d *division) table(alone []time.Duration) []time.Duration {
	table := make([]time.Duration, min(len(alone), len(d.times)))
	for b := range table {
		table[b] = time.Duration(float64(alone[b]) * d.times[b] / d.alone[b])
	}
	for b := len(table) - 2; b >= 0; b-- { // A smaller batch takes no longer.
		table[b] = min(table[b], table[b+1])
	}
	return table
}
