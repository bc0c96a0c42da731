package partitioning

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/model/cut"
	"github.com/faas-infer/faas-infer/papers/gillis/partition"
	"github.com/faas-infer/faas-infer/profiler"
)

// mostConcurrency bounds the batches in rounds at once: each holds tensors.
const mostConcurrency = 8

// Serving says for what a plan is served.
type Serving struct {
	// Content is the model's hash, Source its file.
	Content, Source string
	// Memory is a member's limit in bytes, 0 for none. Members is the maximum number.
	Memory  int64
	Members int
	// MaxBatch is the largest batch. Batches above the first that takes longer than Until are
	// left out, if that is not 0.
	MaxBatch int
	Until    time.Duration
	// Engine and Machine are those of the profile.
	Engine, Machine string
}

// Members gives the plan's parts to as few members as hold them: at most most, with memory bytes
// each. The content of the model has this hash.
func (p *Planned) Members(content string, memory int64, most int) (*cut.Plan, []partition.Member, error) {
	at, members, err := p.Assign(memory, most)
	if err != nil {
		return nil, nil, err
	}
	out := &cut.Plan{Model: content, Members: len(members)}
	for i, r := range p.Rounds {
		out.Rounds = append(out.Rounds, cut.Round{First: r.First, End: r.End, Cut: r.Option.Name, On: at[i]})
	}
	return out, members, nil
}

// Serve assigns a plan's parts to members and predicts the set's times by batch.
func (p *Planned) Serve(ctx context.Context, on *partition.Platform, s Serving) (*partition.Served, error) {
	plan, members, err := p.Members(s.Content, on.Memory(), s.Members)
	if err != nil {
		return nil, err
	}
	out := &partition.Served{Plan: plan, Source: s.Source, Profile: &profiler.Profile{
		Model: plan.Hash(), Engine: s.Engine, Machine: s.Machine, Parts: len(members), Active: plan.Active(), MeasuredAt: time.Now(),
	}}
	parts, err := p.timeParts(ctx, s)
	if err != nil {
		return nil, err
	}
	t := timing{Planned: p, on: on, plan: plan, parts: parts}
	busiest := 0.0
	for b := range parts[0][0] {
		batch, point := t.batch(b, len(members), out.Profile.Computing())
		need := int64(0)
		for _, m := range members {
			need = max(need, partition.Overhead+m.Weights+int64(batch)*m.Activations)
		}
		if s.Memory > 0 && need > s.Memory && batch > 1 {
			break
		}
		if out.MemberMemory = need; batch == 1 {
			busiest = point.busiest
			out.Concurrency = min(mostConcurrency, max(1, int(point.Median/max(1, busiest))))
		}
		out.Profile.Measurements = append(out.Profile.Measurements, point.Measurement)
		if s.Until > 0 && point.Median > float64(s.Until.Microseconds()) {
			break
		}
	}
	if len(out.Profile.Measurements) == 0 {
		return nil, errors.New("the plan's times are not predicted")
	}
	out.Profile.Concurrency, out.Profile.Memory = out.Concurrency, out.MemberMemory*int64(len(members))
	return out, nil
}

// timeParts predicts the times of all parts, by round and part, for the batches that all have.
func (p *Planned) timeParts(ctx context.Context, s Serving) (times [][][]profiler.Measurement, err error) {
	least := -1
	for _, r := range p.Rounds {
		parts, _, err := p.Parts(r.First, r.End, r.Option.Name)
		if err != nil {
			return nil, err
		}
		var round [][]profiler.Measurement
		for i, part := range parts {
			found, err := PartTimes(ctx, p.planner.predict, part, p.planner.weights, s.MaxBatch, s.Until)
			if err != nil {
				return nil, fmt.Errorf("layers %d to %d, part %d: %w", r.First, r.End-1, i+1, err)
			}
			if round = append(round, found); least < 0 || len(found) < least {
				least = len(found)
			}
		}
		times = append(times, round)
	}
	for _, round := range times {
		for i := range round {
			round[i] = round[i][:least]
		}
	}
	return times, nil
}

// timing times a set by its parts' times.
type timing struct {
	*Planned
	on    *partition.Platform
	plan  *cut.Plan
	parts [][][]profiler.Measurement
}

// point is what a batch takes. busiest is the time in µs that the busiest member computes.
type point struct {
	profiler.Measurement
	busiest float64
}

// batch times the b-th batch size on members of which active compute at the same time.
func (t *timing) batch(b, members, active int) (rows int, out point) {
	rows = t.parts[0][0][b].Batch
	out.Measurement = profiler.Measurement{Batch: rows, Threads: active, Predicted: true}
	busy := make([]float64, members)
	margin, computed := 0.0, 0.0 // A part that takes no time may be quite uncertain.
	for i, r := range t.Rounds {
		longest := 0.0
		usual, slow := make([]partition.Part, len(r.Option.Parts)), make([]partition.Part, len(r.Option.Parts))
		for k, part := range r.Option.Parts {
			m := t.parts[i][k][b]
			part.In, part.Out = part.In*int64(rows), part.Out*int64(rows)
			usual[k], slow[k] = part, part
			usual[k].Compute, slow[k].Compute = m.Median/1000, m.P95/1000
			busy[t.plan.Rounds[i].On[k]] += m.CPU
			longest = max(longest, m.CPU)
			margin, computed = margin+m.Margin*m.Median, computed+m.Median
		}
		// Under a quota the round takes as long as its longest part.
		out.CPU += float64(active) * longest
		mean, late := t.on.RoundTime(usual, r.Master), t.on.RoundTime(slow, r.Master)
		moments := mean.Moments()
		out.Median += 1000 * moments.Mean
		out.P95 += 1000 * max(moments.Mean, late.Quantile(0.95))
	}
	if computed > 0 {
		out.Margin = margin / computed
	}
	for _, us := range busy {
		out.busiest = max(out.busiest, us)
	}
	// Tensors are copied, which the members' threads do.
	out.CPU = max(out.CPU, out.Median)
	return rows, out
}

// Served makes the plans that are worth serving: for every number of parts that may run at
// once, the fastest, if it is not one of the plans before. The error is about the last number
// if there is no plan at all.
func (p *Planner) Served(ctx context.Context, s Serving) (all []*partition.Served, err error) {
	seen := make(map[string]bool)
	var why error
	for parts := 1; parts <= min(s.Members, p.on.MaxParts); parts++ {
		on := *p.on
		on.MaxParts = parts
		planned, err := p.Plan(ctx, on)
		if err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			why = err
			continue
		}
		if planned.whole() || seen[planned.key()] {
			continue
		}
		seen[planned.key()] = true
		served, err := planned.Serve(ctx, &on, s)
		var few *partition.MembersError
		switch {
		case errors.As(err, &few):
			why = err
			continue
		case err != nil:
			return nil, err
		}
		served.Name = fmt.Sprintf("parts-%d", parts)
		all = append(all, served)
	}
	if len(all) == 0 && why != nil {
		return nil, why
	}
	return all, nil
}

// whole reports whether the plan is the whole model on the master.
func (p *Planned) whole() bool {
	return len(p.Rounds) == 1 && len(p.Rounds[0].Option.Parts) == 1
}

// key identifies the plan among those of its model.
func (p *Planned) key() string {
	var b strings.Builder
	for _, r := range p.Rounds {
		fmt.Fprintf(&b, "%d %s %d;", r.End, r.Option.Name, r.Master)
	}
	return b.String()
}
