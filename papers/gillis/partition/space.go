package partition

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Space holds every round that a plan of a model on a platform can have, with its costs.
// Make one with [NewSpace]. All methods leave it as it is.
type Space struct {
	platform *Platform
	limits   Limits
	layers   int
	// rounds has the rounds of layers [first, end) at [first][end-first-1].
	rounds [][][]Round
	// weights and workers have, for each layer, the maximum that the rounds of a plan from
	// there on add up to. activations is the maximum of all rounds.
	weights     []int64
	workers     []int
	activations int64
	// tail is the longest tail of all rounds. All of them get it: the latency of a plan by
	// a percentile then depends on mean and variance only, which add up.
	tail float64
}

// NewSpace times all options of all groups of the model on the platform. It leaves out
// parts that do not fit into a function (Algorithm 1, line 7). It fails with a
// [MemoryError] if a layer fits into no function, and with other errors if an option's
// values make no sense.
func NewSpace(m Model, p *Platform, limits Limits) (*Space, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	if m.Layers() < 1 {
		return nil, errors.New("model: it has no layers")
	}
	s := &Space{platform: p, limits: limits, layers: m.Layers()}
	t := newTimer(p)
	need := newBottleneck(s.layers)
	for first := range s.layers {
		ends := make([][]Round, s.layers-first)
		for end := first + 1; end <= s.layers; end++ {
			options := m.Options(first, end)
			for i := range options {
				if err := check(&options[i], first, end); err != nil {
					return nil, err
				}
				if p.MaxParts > 0 && len(options[i].Parts) > p.MaxParts {
					continue
				}
				need.add(first, end, options[i].Parts)
				ends[end-first-1] = append(ends[end-first-1], s.placements(t, first, end, &options[i])...)
			}
		}
		s.rounds = append(s.rounds, ends)
	}
	if err := need.within(p.Memory()); err != nil {
		return nil, err
	}
	s.bound()
	if limits.Placement == WheneverItFits && s.roomy(0, 0) {
		for _, ends := range s.rounds {
			for i := range ends {
				ends[i] = mastered(ends[i])
			}
		}
	}
	return s, nil
}

// bound finds the most that plans can need, and the longest tail.
func (s *Space) bound() {
	s.weights, s.workers = make([]int64, s.layers+1), make([]int, s.layers+1)
	for first := s.layers - 1; first >= 0; first-- {
		for _, rounds := range s.rounds[first] {
			for i := range rounds {
				r := &rounds[i]
				s.weights[first] = max(s.weights[first], r.Weights+s.weights[r.End])
				s.workers[first] = max(s.workers[first], r.Workers()+s.workers[r.End])
				s.activations = max(s.activations, r.Activations)
				s.tail = max(s.tail, r.Time.Tail)
			}
		}
	}
	for _, ends := range s.rounds {
		for _, rounds := range ends {
			for i := range rounds {
				rounds[i].Time.Tail = s.tail
			}
		}
	}
}

// roomy reports whether any rounds from the layer on fit into a master that already keeps
// the weights.
func (s *Space) roomy(layer int, weights int64) bool {
	return weights+s.weights[layer]+s.activations <= s.platform.Memory()
}

// check says what is wrong with an option.
func check(o *Option, first, end int) error {
	if len(o.Parts) == 0 {
		return fmt.Errorf("model: layers %d to %d, option %s: no parts", first, end-1, o.Name)
	}
	for i := range o.Parts {
		part := &o.Parts[i]
		if !(part.Compute >= 0) || math.IsInf(part.Compute, 0) || min(part.Weights, part.Activations, part.In, part.Out) < 0 {
			return fmt.Errorf("model: layers %d to %d, option %s: part %d: %+v: values must be finite and not below 0", first, end-1, o.Name, i, *part)
		}
	}
	return nil
}

// placements returns the rounds of one option: without the master, and with each part on
// the master that differs from those before it.
func (s *Space) placements(t *timer, first, end int, o *Option) []Round {
	parts := o.Parts
	memory := s.platform.Memory()
	for i := range parts {
		if parts[i].size() > memory {
			return nil
		}
	}
	var rounds []Round
	for master := Nobody; master < len(parts); master++ {
		if master >= 0 && slices.Contains(parts[:master], parts[master]) {
			continue
		}
		r := Round{First: first, End: end, Option: o, Master: master}
		if f := s.limits.Functions; f > 0 && 1+r.Workers() > f {
			continue
		}
		for i := range parts {
			if i == master {
				r.Weights = parts[i].Weights
				r.Activations += parts[i].Activations
				continue
			}
			r.Activations += parts[i].In + parts[i].Out
			r.Work += s.platform.Billing.billed(s.platform.worker(&parts[i], s.platform.crowded(len(parts))))
		}
		if r.Weights+r.Activations > memory {
			continue
		}
		l := t.round(parts, master)
		r.Time = l.Moments()
		rounds = append(rounds, r)
	}
	return rounds
}

// mastered returns the rounds of one group in which the master computes a part. Options
// that have no such round keep theirs.
func mastered(rounds []Round) []Round {
	var kept []Round
	for i := range rounds {
		others := slices.ContainsFunc(rounds, func(r Round) bool { return r.Option == rounds[i].Option && r.Master != Nobody })
		if rounds[i].Master != Nobody || !others {
			kept = append(kept, rounds[i])
		}
	}
	return kept
}

// bottleneck finds the least memory of a function with which there is a plan.
type bottleneck struct {
	// least has, for each layer, the least memory with which the layers before it run, and
	// from the first layer of the last group of that plan.
	least []int64
	from  []int
}

func newBottleneck(layers int) *bottleneck {
	b := &bottleneck{make([]int64, layers+1), make([]int, layers+1)}
	for i := range b.least[1:] {
		b.least[i+1] = math.MaxInt64
	}
	return b
}

// add considers one option. Groups must come in the order of their first layers. A plan
// needs the least if its master computes nothing: then the master holds only what it
// exchanges.
func (b *bottleneck) add(first, end int, parts []Part) {
	need, exchanged := b.least[first], int64(0)
	for i := range parts {
		need = max(need, parts[i].size())
		exchanged += parts[i].In + parts[i].Out
	}
	if need = max(need, exchanged); need < b.least[end] {
		b.least[end], b.from[end] = need, first
	}
}

// within fails if the memory is less than the least.
func (b *bottleneck) within(memory int64) error {
	end := len(b.least) - 1
	if b.least[end] == math.MaxInt64 {
		return errors.New("model: its layers cannot be grouped so that every layer is in a group: give every layer an option")
	}
	if b.least[end] <= memory {
		return nil
	}
	for b.least[b.from[end]] == b.least[end] {
		end = b.from[end]
	}
	return &MemoryError{memory, b.least[len(b.least)-1], b.from[end], end}
}
