package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/backoff"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/dispatch"
	"github.com/faas-infer/faas-infer/provider/keeper"
	"github.com/faas-infer/faas-infer/provider/latency"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// This file holds what a controller does for instances that others help. [Shadows] chooses what a shadow holds,
// once for each share; the engine decides which instance gets one; and tell.go tells bodies where their shadows
// are.

const (
	// pairWeight is that of the latest execution in a pair's mean times.
	pairWeight = 0.1
)

// pairs tells bodies where their shadows are, and the engine which instances can have some.
type pairs struct {
	// shadows is nil if the program has none.
	shadows   Shadows
	mu        *sync.Mutex
	keeper    *keeper.Keeper[*instance]
	functions map[string]*function
	// leads reports whether this replica starts and stops instances.
	leads func() bool
	wake  func()
	log   zerolog.Logger
}

// parts are what is known of an artefact's shadows. The zero value means that this is to be found.
type parts struct {
	// divisions are the parts for shadows of its instances, by share.
	divisions []Division
	// undivided is why there are none by the model's layers, "" otherwise. failed is why the last
	// attempt to find them failed.
	undivided, failed string
	// earlier are the divisions before an update, until there are new ones.
	earlier []Division
}

// shown are the divisions whose pairs have shown how slow they are.
func (p *parts) shown() []Division {
	if len(p.divisions) > 0 {
		return p.divisions
	}
	return p.earlier
}

// take takes what was found. New divisions keep what pairs of the same share and part have shown.
func (p *parts) take(found parts) {
	earlier := p.shown()
	if *p = found; len(p.divisions) == 0 {
		p.earlier = earlier
	}
	for _, d := range p.divisions {
		for _, x := range earlier {
			if alike(x, d) {
				d.Inherit(x.Shown())
			}
		}
	}
}

// alike reports whether two divisions are of one share and part.
func alike(x, d Division) bool {
	cpu, part := d.Of()
	return helps(x, cpu, part)
}

// helps reports whether a division is for instances with a share, with a shadow that holds part; "" is any.
func helps(d Division, cpu int, part string) bool {
	share, held := d.Of()
	return share == cpu && (part == "" || held == part)
}

// rejoin makes bodies count as pairs by the artefact's present divisions, by share and part. The lock is held.
func rejoin(fn *function, a *artefact) {
	for _, in := range fn.Instances {
		if in.helped == nil || in.own() != a {
			continue // Without a shadow, or of an earlier model.
		}
		if d := a.division(in.helped.Of()); d != nil && d != in.helped {
			in.helped = d
			in.Up()
		}
	}
}

// known reports whether nothing is to be found.
func (p *parts) known() bool { return len(p.divisions) > 0 || p.undivided != "" }

// division is the way to help instances with a share, nil if there is none. part is what the shadow
// holds, "" for any.
func (a *artefact) division(cpu int, part string) Division {
	for _, d := range a.divisions {
		if helps(d, cpu, part) {
			return d
		}
	}
	return nil
}

// unwanted says so if no function has shadows. The lock is held.
func (c *pairs) unwanted() {
	if c.shadows == nil {
		return
	}
	for _, fn := range c.functions {
		if fn.Inference.Shadow != "" || fn.wanted != nil && fn.wanted.Inference.Shadow != "" || len(fn.shadows.Instances) > 0 {
			return
		}
	}
	c.shadows.Unwanted()
}

// look adds a function's shadows, and how its instances can be helped, to what the engine sees of it. No
// shadow starts for a time after one has failed. The lock is held.
func (c *pairs) look(now time.Time, fn *function, f *scaling.Function) {
	if fn.Inference.Shadow == "" && len(fn.shadows.Instances) == 0 && !fn.paired {
		return
	}
	for _, s := range fn.shadows.Sorted() {
		if s.There() {
			fn.shadows.Failures.Serves(now, s.ReadyAt)
		}
	}
	for _, a := range fn.artefacts {
		for _, d := range a.divisions {
			d.Forget(now)
		}
	}
	f.Shadows, f.Pairings = shadowsSeen(fn), pairings(fn)
	f.NoShadows = fn.shadows.Failures.Pausing(now)
	// On one machine all instances map prepared models. Pods that may have shadows share their node's copy,
	// which a whole instance makes.
	f.SharedWeights, f.ShadowsBeside = true, true
	if c.leads() {
		c.tell(now, fn)
	} else {
		c.follow(fn)
	}
}

// pairings are the ways to help a function's instances, as the engine sees them.
func pairings(fn *function) (all []scaling.Pairing) {
	for _, s := range fn.shadows.Sorted() {
		if a := fn.artefact(s.Artefact.Name); a != nil && s.Loading > 0 {
			a.shadowLoading = s.Loading
		}
	}
	for _, a := range fn.artefacts {
		for _, d := range a.divisions {
			x := d.Pairing(a.Name, a.candidates)
			loading := x.Whole.Loading
			x.Whole.Loading = max(a.loading, loading)
			// The first shadow's process starts as the whole one's does.
			x.Shadow.Loading = cmp.Or(a.shadowLoading, x.Shadow.Loading+x.Whole.Loading-loading)
			all = append(all, x)
		}
	}
	return all
}

// shadowsSeen are a function's shadows as the engine sees them.
func shadowsSeen(fn *function) (all []scaling.Running) {
	for _, in := range fn.shadows.Sorted() {
		all = append(all, scaling.RunningOf(&in.Instance, in.Retiring || in.Suspect || in.leaving != ""))
	}
	return all
}

// takesShadows reports whether instances of an artefact start as bodies that can have shadows.
func takesShadows(fn *function, a *artefact, config cluster.Config) bool {
	return fn.Inference.Shadow != "" && a.shadowless == "" && a.undivided == "" && config.GPU == 0 && config.Members() == 1
}

// pair records that a shadow is given to another body. The lock is held.
func (c *pairs) pair(shadow *instance, body cluster.InstanceID) {
	if shadow.Body = body; c.shadows == nil {
		return
	}
	id := shadow.ID
	c.keeper.Begin(func() {
		if err := c.shadows.Pair(c.keeper.Context(), id, body); err != nil && c.keeper.Context().Err() == nil {
			c.log.Warn().Str("instance", string(id)).Err(err).Msg("could not record a shadow's body; the next provider pairs it again")
		}
	})
}

// recordShadows updates the metrics of a function's shadows. The weights of a node's instances are
// those of its bodies: shadows map some of the same. Shadows elsewhere have their own.
func recordShadows(fn *function, leading bool) {
	if fn.Inference.Shadow == "" && len(fn.shadows.Instances) == 0 || !leading {
		fn.Metrics.SetShadows(false, 0, 0)
		return
	}
	ready := 0
	type place struct{ node, artefact string }
	mapped := map[place]int64{}
	for _, in := range fn.Instances {
		at := place{in.Node, in.Artefact.Name}
		mapped[at] = max(mapped[at], in.weights)
	}
	for _, s := range fn.shadows.Instances {
		if !s.There() {
			continue
		}
		ready++
		if a := fn.artefact(s.Artefact.Name); a != nil {
			if d := a.division(s.Config.CPU, s.Part); d != nil {
				at := place{s.Node, a.Name}
				mapped[at] = max(mapped[at], d.Weights())
			}
		}
	}
	sum := int64(0)
	for _, n := range mapped {
		sum += n
	}
	fn.Metrics.SetShadows(true, ready, sum)
}

// help makes the instance's times those of a pair, or its own if d is nil. The lock is held.
func (in *instance) help(d Division) {
	if d == in.helped {
		return
	}
	if in.helped, in.pairRatio = d, 1; d == nil {
		in.mixedUntil = time.Now().Add(2 * in.exec)
	}
	in.Up()
}

// pairTable lists the pair's times as its executions correct them.
func (in *instance) pairTable() []time.Duration {
	table := in.helped.Table(in.table)
	for b := range table {
		table[b] = time.Duration(in.pairRatio * float64(table[b]))
	}
	return table
}

// executedAsPair corrects the pair's times by an execution. The policy gets them again if they differ
// by a twentieth. A batch is full if no larger one is in time as the policy knows it: a pair that turns out to be
// slow gets smaller batches, and plans must go on to learn from these.
func (in *instance) executedAsPair(now time.Time, e dispatch.Executed) {
	table := in.helped.Table(in.table)
	if e.Size < 1 || e.Size > len(table) || table[e.Size-1] <= 0 {
		return
	}
	before := in.pairRatio
	ratio := float64(e.Exec) / float64(table[e.Size-1])
	switch {
	case e.Size < in.pairFull:
	case e.Size == 1: // Nothing shows that another one was beside it, without which it takes less.
		in.helped.Executed(now, max(1, ratio))
	default:
		in.helped.Executed(now, ratio)
	}
	in.pairRatio += pairWeight * (min(4, max(0.25, ratio)) - in.pairRatio)
	if math.Abs(in.pairRatio-in.pairTold) > 0.05*in.pairTold && before != in.pairRatio {
		in.Up()
	}
}

// shadowless says why the instances of a function's model can have no shadows, "" if they may.
func (c *pairs) shadowless(f *provider.Function, m Model) string {
	if c.shadows == nil {
		return noShadows
	}
	switch err := c.shadows.Check(f, m.File); {
	case m.Plan != nil:
		return "the model is cut over several instances"
	case err != nil:
		return err.Error()
	case f.Inference.Device == annotation.DeviceCUDA:
		return "the model runs on GPUs only"
	}
	return ""
}

// noShadows says that no room has registered shadows.
const noShadows = "this program has no shadows: it was built without papers/asyfunc"

// check refuses a deployment that asks for shadows of a program that has none. One that another program accepted
// goes on, without shadows: it serves.
func (c *pairs) check(f *provider.Function) error {
	if c.shadows == nil && f.Inference.Shadow != "" && !f.Restored {
		return &annotation.Error{Key: annotation.InferShadow, Value: f.Inference.Shadow, Why: noShadows + "; leave it out"}
	}
	return nil
}

// divide finds the layer profiles of a function's models and chooses the parts of their shadows, as long as
// f is the revision that is served. It leaves out what an earlier call found, and reports whether nothing is
// left to be found.
func (c *pairs) divide(ctx context.Context, fn *function, f *provider.Function, models []Model) (known bool) {
	if f.Inference.Shadow == "" {
		return true
	}
	known = true
	for _, m := range models {
		c.mu.Lock()
		a := servedAs(fn, f, m.Name)
		open := a != nil && a.shadowless == "" && !a.known()
		if a != nil {
			replacePlain(fn, a)
		}
		c.mu.Unlock()
		if !open {
			continue
		}
		found := c.partsOf(ctx, fn, f, m)
		if ctx.Err() != nil {
			return false
		}
		known = known && found.known()
		c.mu.Lock()
		if a := servedAs(fn, f, m.Name); a != nil {
			a.take(found)
			rejoin(fn, a)
			replacePlain(fn, a)
			c.wake()
		}
		c.mu.Unlock()
	}
	return known
}

// servedAs is an artefact if f is the revision that is served, and with it; otherwise nil. The lock is held.
func servedAs(fn *function, f *provider.Function, name string) *artefact {
	if fn.Function != f {
		return nil
	}
	return fn.artefact(name)
}

// partsOf chooses the parts for the shadows of one model.
func (c *pairs) partsOf(ctx context.Context, fn *function, f *provider.Function, m Model) parts {
	rules := fn.rules
	planned := func() (scaling.Function, capacity.Options) {
		seen := scaling.Function{SLO: rules.Planned(f), Percentile: f.Inference.Percentile, Queue: rules.Queue(f)}
		c.mu.Lock()
		defer c.mu.Unlock()
		if a := fn.artefact(m.Name); a != nil {
			seen.Configs = slices.Clone(a.promised)
		}
		return seen, rules.Limits(f)
	}
	found, why, err := c.shadows.Divide(ctx, f, m.File, planned)
	for errors.Is(err, latency.ErrFollowing) && backoff.Wait(ctx, followPause) {
		found, why, err = c.shadows.Divide(ctx, f, m.File, planned)
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, latency.ErrStored) {
		fn.log.Warn().Err(err).Str("variant", m.Name).Msg("the model's instances have no shadows")
	}
	switch {
	case why != "":
		return parts{undivided: why}
	case err != nil:
		return parts{failed: err.Error()}
	}
	return parts{divisions: found}
}

// unshadowed says why no instance of a function can have a shadow, "" if some may.
func unshadowed(fn *function) (why string) {
	for _, a := range fn.artefacts {
		if why = cmp.Or(a.shadowless, a.undivided); why == "" {
			return ""
		}
	}
	return why
}

// replacePlain makes the engine replace an artefact's instances that could have shadows if they had
// started as bodies: they are of a deployment without shadows, or of one for which the artefact was
// not worth dividing. They serve until others are ready. The lock is held.
func replacePlain(fn *function, a *artefact) {
	for _, in := range fn.Instances {
		if len(a.divisions) > 0 && in.Artefact.Name == a.Name && !in.Paired && takesShadows(fn, a, in.Config) {
			in.replace()
		}
	}
}

// shadowText says which shadows a function's instances have, or why they have none; "" if the
// deployment asks for none.
func shadowText(fn *function) string {
	if fn.Inference.Shadow == "" {
		return ""
	}
	if why := unshadowed(fn); why != "" {
		return "no shadows: " + why
	}
	var d Division
	most, whole := 0, int64(0)
	for _, a := range fn.artefacts {
		for _, x := range a.divisions {
			if cpu, _ := x.Of(); d == nil || cpu > most {
				d, most, whole = x, cpu, a.profile.Memory
			}
		}
	}
	if d == nil {
		for _, a := range fn.artefacts {
			if a.failed != "" {
				return "no shadows yet, it is tried again: " + a.failed
			}
		}
		return "shadows: the model's layers are being profiled"
	}
	text := fmt.Sprintf("shadows: %d for %d instances; %s", len(fn.shadows.Instances), len(fn.Instances), d.Describe(whole))
	for _, in := range fn.Sorted() {
		if in.refused > 0 {
			return text + "; an instance has none for a time: " + in.refusal
		}
	}
	return text
}
