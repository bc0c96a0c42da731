package correction

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"time"

	"github.com/faas-infer/faas-infer/profiler"
)

// State is the part of a correction that is kept over a restart.
type State struct {
	// Profile is the [Fingerprint] of the corrected profile.
	Profile string `json:"profile"`
	// Beside is the instances' CPU time outside the engine.
	Beside  profiler.Beside `json:"beside,omitzero"`
	Classes []Class         `json:"classes"`
	// Elements is the size of rows for which the times are, 0 for the profile's own.
	Elements int64 `json:"elements,omitzero"`
}

// longestBeside is the maximum of a valid [State.Beside], in µs.
const longestBeside = 60e6

// Class is the evidence of some batch sizes on one share.
type Class struct {
	// Millicores and GPU are the share, the latter in % of one GPU's SMs. Largest is the
	// class's largest batch size, a power of two.
	Millicores int `json:"millicores"`
	GPU        int `json:"gpu,omitzero"`
	Largest    int `json:"largest"`
	// Factor multiplies the prediction; 0 is no correction.
	Factor float64 `json:"factor"`
	// Weights is a histogram of measured over predicted times that begins with
	// the bucket First.
	First   int       `json:"first"`
	Weights []float64 `json:"weights"`
	// Seen is the time of the latest execution.
	Seen time.Time `json:"seen,omitzero"`
}

// Fingerprint identifies a profile by its model, engine, machine and times.
func Fingerprint(p *profiler.Profile) string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q %q\n", p.Model, p.Engine, p.Machine)
	for _, m := range p.Measurements {
		for _, x := range []float64{float64(m.Batch), float64(m.Threads), m.Median, m.P95, m.CPU, m.Margin} {
			h.Write(binary.LittleEndian.AppendUint64(nil, math.Float64bits(x)))
		}
		if m.GPU > 0 {
			fmt.Fprintf(h, "gpu %d\n", m.GPU)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// State returns a copy of the state to keep.
func (c *Correction) State() State {
	out := State{Profile: c.id, Beside: c.bare.Beside, Classes: []Class{}, Elements: c.seen.planned}
	for _, s := range c.sorted() {
		for i := range s.classes {
			if k := &s.classes[i]; k.counts != nil || k.factor != 0 {
				out.Classes = append(out.Classes, k.state(s.Share, i))
			}
		}
	}
	return out
}

func (k *class) state(on profiler.Share, i int) Class {
	out := Class{Millicores: on.CPU, GPU: on.GPU, Largest: 1 << i, Factor: k.factor, Seen: k.seen, Weights: []float64{}}
	if k.counts == nil {
		return out
	}
	for at, w := range k.counts {
		w = math.Round(w*1000) / 1000
		if w == 0 && len(out.Weights) == 0 {
			continue
		}
		if len(out.Weights) == 0 {
			out.First = at
		}
		out.Weights = append(out.Weights, w)
	}
	for n := len(out.Weights); n > 0 && out.Weights[n-1] == 0; n-- {
		out.Weights = out.Weights[:n-1]
	}
	return out
}

// Restore adds the evidence of an earlier correction as old evidence ([evidence.age]): it
// believes a slower model up to [Believed], but not a busy machine. The age of the
// evidence at now counts too. Restore refuses evidence of another profile, and a state
// that cannot come from State; it then changes nothing.
func (c *Correction) Restore(s State, now time.Time) error {
	if s.Profile != c.id {
		return fmt.Errorf("the evidence is for another profile (%.12s, not %.12s)", s.Profile, c.id)
	}
	for _, k := range s.Classes {
		if err := c.check(k); err != nil {
			return err
		}
	}
	if b := s.Beside; !(b.Batch >= 0 && b.Batch <= longestBeside && b.Request >= 0 && b.Request <= longestBeside) {
		return fmt.Errorf("beside is %v; both times must be from 0 to %v µs", b, longestBeside)
	}
	if s.Elements < 0 || s.Elements > largestElements {
		return fmt.Errorf("rows of %d elements", s.Elements)
	}
	if s.Beside != (profiler.Beside{}) {
		c.setBeside(s.Beside)
	}
	if s.Elements > 0 && c.base.BySize != nil {
		c.setSize(s.Elements)
	}
	if now.After(c.now) {
		c.now = now
	}
	for _, k := range s.Classes {
		s := c.share(k.on())
		to := &s.classes[classOf(k.Largest)]
		*to = class{factor: min(k.Factor, Believed*s.caution(classOf(k.Largest))), evidence: evidence{seen: k.Seen}}
		if len(k.Weights) > 0 {
			to.counts = new(counts)
			copy(to.counts[k.First:], k.Weights)
			to.age()
		}
	}
	c.Update(now)
	return nil
}

// on is the share.
func (k Class) on() profiler.Share { return profiler.Share{CPU: k.Millicores, GPU: k.GPU} }

func (c *Correction) check(k Class) error {
	where := fmt.Sprintf("evidence of batches up to %d at %dm and %d %% of a GPU", k.Largest, k.Millicores, k.GPU)
	if k.Millicores < 1 || k.Largest < 1 || k.Largest&(k.Largest-1) != 0 || classOf(k.Largest) >= len(c.share(k.on()).classes) {
		return fmt.Errorf("%s: the profile does not cover these", where)
	}
	if !(k.Factor >= 0 && k.Factor <= maxRatio) {
		return fmt.Errorf("%s: a factor of %v", where, k.Factor)
	}
	if k.First < 0 || k.First+len(k.Weights) > buckets {
		return fmt.Errorf("%s: %d buckets from %d, there are %d", where, len(k.Weights), k.First, buckets)
	}
	for _, w := range k.Weights {
		if !(w >= 0 && w <= widest) {
			return fmt.Errorf("%s: a weight of %v", where, w)
		}
	}
	return nil
}
