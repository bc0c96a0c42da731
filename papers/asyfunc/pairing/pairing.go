// Package pairing decides how instances of a share are helped by shadows (AsyFunc, SoCC 2023): which part of
// the model a shadow holds, by the measure of the engine that starts it, and how fast a pair counts in plans.
// Package scaling then decides whether a shadow is the cheapest way to serve more, and package shadow knows
// which parts there are. The package is pure. Begin with [Divider].
package pairing

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/papers/asyfunc/shadow"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

const (
	// pairReach is the part of the requests per second of two whole instances that a pair should
	// have, and pairGain that by which it must exceed those of one.
	pairReach, pairGain = 0.9, 1.1
	// MaxBatch is the largest batch of a pair.
	MaxBatch = 16
	// shadowMargin is how much more memory a shadow gets than its part needs, leastShadow its
	// least memory in bytes.
	shadowMargin, leastShadow = 2, 128 << 20
)

// Relayed is the time of tensors between a body and its shadow on one node where it could not be measured:
// longer than bench shadow has ever found it.
var Relayed = shadow.Transfer{Fixed: 0.3, PerMiB: 0.1}

// Division is a way to help instances of an artefact with a share.
type Division struct {
	// CPU is the share in millicores, Part what a shadow holds, Config the shadow's own.
	CPU    int
	Part   string
	Config cluster.Config
	Pair   shadow.Pair
	// Streams is the number of batches that a pair executes at the same time.
	Streams int
	// times are the pair's by batch, alone those of the body without a shadow, in ms.
	times, alone []float64
	// whole is what a whole instance takes, own what the shadow does, without the time to start a
	// process.
	whole, own scaling.Footprint
	// shown is what such pairs have shown.
	shown scaling.Shown
}

// partOf is Φ as instances read it.
func partOf(p shadow.Phi) string {
	runs := make([]string, len(p))
	for i, r := range p {
		runs[i] = fmt.Sprintf("%d:%d", r.First, r.End)
	}
	return strings.Join(runs, ",")
}

// Divider chooses parts for a function's instances.
type Divider struct {
	Model *shadow.Model
	// Planned has the function's objective, percentile, queue and configs as the engine plans with
	// them; Limits are the engine's options.
	Planned scaling.Function
	Limits  capacity.Options
	// Transfer is the time of tensors between a body and its shadow.
	Transfer shadow.Transfer
}

// Divide chooses a part for each share of cores on which an artefact may run. It leaves out shares
// for which a pair gains too little.
func (x *Divider) Divide() (all []Division, err error) {
	for _, c := range x.Planned.Configs {
		if c.Config.GPU > 0 || c.Config.Members() > 1 || slices.ContainsFunc(all, func(d Division) bool { return d.CPU == c.Config.CPU }) {
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

// on is Divide for one share. The choice by [shadow.Choose] does not know what the engine keeps for
// chance and for the way, so the first that gains by the engine's measure is taken: the least memory
// that reaches enough, otherwise the most requests for the cores, and then both again within shorter
// times.
func (x *Divider) on(cpu int) (d Division, gains bool, err error) {
	largest := 1
	for _, c := range x.Planned.Configs {
		if onCores(&c, cpu) {
			largest = max(largest, c.Config.Batch)
		}
	}
	o := shadow.Options{Body: cpu, Shadow: cpu, MaxRows: min(largest, MaxBatch), Transfer: x.Transfer, Partial: true}
	for _, part := range []float64{1, 0.7, 0.5} {
		for _, reach := range []float64{pairReach, 0} {
			o.Reach, o.SLO = reach, part*float64(x.Planned.SLO)/float64(time.Millisecond)
			p, found, err := shadow.Choose(x.Model, o)
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
		if x.Planned.SLO == 0 {
			break
		}
	}
	return d, false, nil
}

// division is what follows from a pair.
func (x *Divider) division(cpu, largest int, p shadow.Pair) Division {
	d := Division{CPU: cpu, Part: partOf(p.Phi), Pair: p, shown: scaling.Shown{Planned: 1}}
	d.Streams, d.times = p.Streams()
	for b := range d.times {
		d.alone = append(d.alone, x.Model.Time(0, len(x.Model.Blocks), b+1, cpu))
	}
	d.Config = cluster.Config{Batch: largest, Resources: cluster.Resources{CPU: cpu}}
	d.own, d.whole = x.footprint(p.Phi, largest), x.footprint(x.Model.All(), largest)
	d.Config.Memory = max(leastShadow, shadowMargin*(d.own.Own+d.own.Weights))
	return d
}

// footprint is what an instance with some blocks takes for batches of up to largest.
func (x *Divider) footprint(phi shadow.Phi, largest int) scaling.Footprint {
	m := x.Model
	return scaling.Footprint{
		Own: m.Own + int64(largest)*m.Activations(phi), Weights: m.Weights(phi), Loading: time.Duration(m.Load(phi) * float64(time.Millisecond)),
	}
}

// gains reports whether instances serve enough more with such a shadow, at the load that fills one
// alone.
func (x *Divider) gains(d *Division) bool {
	pairing, f := scaling.Pairing{Pair: d.candidates(x.Planned.Configs)}, x.Planned
	var best capacity.Candidate
	for _, c := range f.Configs {
		if onCores(&c, d.CPU) && c.Exec > 0 {
			if up := float64(c.Config.Batch) / c.Exec.Seconds(); up > f.Rate {
				best, f.Rate = c, up
			}
		}
	}
	alone, pair := pairing.Rates(x.Limits, &f, best)
	return pair > 0 && pair >= pairGain*alone
}

// onCores reports whether a candidate is that of one instance with a share of cores.
func onCores(c *capacity.Candidate, cpu int) bool {
	return c.Config.CPU == cpu && c.Config.GPU == 0 && c.Config.Members() == 1
}

// Pairing is the way as the engine sees it. alone are the artefact's candidates.
func (d *Division) Pairing(artefact string, alone []capacity.Candidate) scaling.Pairing {
	return scaling.Pairing{Artefact: artefact, CPU: d.CPU, Part: d.Part, Config: d.Config, Pair: d.candidates(alone), Whole: d.whole, Shadow: d.own}
}

// candidates are the pair's, of the body's own: with their times, changed as the layer profile says and by
// what pairs of this kind have shown. What whole instances have shown has corrected the body's.
func (d *Division) candidates(alone []capacity.Candidate) (all []capacity.Candidate) {
	for _, c := range alone {
		if b := c.Config.Batch; onCores(&c, d.CPU) && b <= len(d.times) {
			ratio := d.shown.Planned * d.times[b-1] / d.alone[b-1]
			all = append(all, capacity.Candidate{
				Artefact: c.Artefact, Exec: time.Duration(ratio * float64(c.Exec)), Mean: time.Duration(ratio * float64(c.Mean)),
				Config: cluster.Config{Batch: b, Concurrency: d.Streams, Resources: cluster.Resources{CPU: d.CPU}},
			})
		}
	}
	return all
}

// Table lists the times of a pair's batches of 1, 2, … requests: those of the body alone, changed as
// the layer profile says.
func (d *Division) Table(alone []time.Duration) []time.Duration {
	table := make([]time.Duration, min(len(alone), len(d.times)))
	for b := range table {
		table[b] = time.Duration(float64(alone[b]) * d.times[b] / d.alone[b])
	}
	for b := len(table) - 2; b >= 0; b-- { // A smaller batch takes no longer.
		table[b] = min(table[b], table[b+1])
	}
	return table
}

const (
	// slowerWeight is that of the latest batch in the mean of how pairs execute. Plans follow it in
	// steps of slowerStep, up to slowest.
	slowerWeight, slowerStep, slowest = 0.1, 0.05, 4
	// forgotten is how long it counts. A pair that is too slow is not started again, so it cannot show
	// that it was disturbed only for a time.
	forgotten = 10 * time.Minute
)

// Executed takes in that a full batch of such a pair took ratio times as long as [Division.Table] says.
// It counts in plans only as far as pairs are slower than predicted: a batch without another beside it
// takes less than its time in a busy pair, and a batch does not show whether there was one. For example
// pairs that take 1.2 times as long on average serve 1/1.2 of what the layer profile says.
func (d *Division) Executed(now time.Time, ratio float64) {
	s := &d.shown
	s.Seen = now
	if s.Slower == 0 {
		s.Slower = 1
	}
	s.Slower += slowerWeight * (min(slowest, max(0, ratio)) - s.Slower)
	if slower := max(1, s.Slower); math.Abs(slower-s.Planned) > slowerStep*s.Planned || slower == 1 {
		s.Planned = slower
	}
}

// Shown is what such pairs have shown.
func (d *Division) Shown() scaling.Shown { return d.shown }

// Inherit takes over what pairs of an earlier division with the same share and part have shown.
func (d *Division) Inherit(shown scaling.Shown) { d.shown = shown }

// Forget lets pairs count as predicted again if none has executed a full batch for ten minutes.
func (d *Division) Forget(now time.Time) {
	if d.shown.Slower > 0 && now.Sub(d.shown.Seen) > forgotten {
		d.shown = scaling.Shown{Planned: 1}
	}
}

// Of is the share of the instances that are helped in millicores, and what a shadow holds.
func (d *Division) Of() (cpu int, part string) { return d.CPU, d.Part }

// Concurrency is Streams.
func (d *Division) Concurrency() int { return d.Streams }

// Weights is the size of the weights that a shadow maps in bytes.
func (d *Division) Weights() int64 { return d.Pair.Weights }

// Describe says what a shadow holds, beside a whole instance that needs so many bytes, and what makes one cheap.
func (d *Division) Describe(whole int64) string {
	const mib = 1 << 20
	return fmt.Sprintf("beside %dm one holds the blocks %s with %d MiB of weights, and takes %d MiB; a whole instance needs %d MiB; they start where that is the cheapest: "+
		"a node's instances share the weights, so a shadow takes %d MiB more and a whole instance %d",
		d.CPU, d.Part, d.Weights()/mib, d.Config.Memory/mib, whole/mib, d.own.Own/mib, d.whole.Own/mib)
}
