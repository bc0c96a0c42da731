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

	"github.com/faas-infer/faas-infer/backoff"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/dispatch"
	"github.com/faas-infer/faas-infer/provider/keeper"
	"github.com/faas-infer/faas-infer/provider/latency"
	"github.com/faas-infer/faas-infer/provider/metrics"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/pairing"
	"github.com/faas-infer/faas-infer/shadow"
)

// This file holds what a controller does for instances with shadows (AsyFunc). It chooses a shadow's
// part by the model's layer profile, once for each share; the engine decides which instance gets one;
// and tell.go tells bodies where their shadows are.

// Shadows are what a controller needs of instances that can have shadows.
type Shadows interface {
	// Check returns an error that says why a function's instances of a model can have none, without reading
	// it.
	Check(f *provider.Function, file string) error
	// Blocks finds the times of a model's blocks. It may take some seconds. The error is
	// a [shadow.UndividedError] if no later attempt can succeed.
	Blocks(ctx context.Context, file string) (*shadow.Model, error)
	// Transfer is the time of tensors between a body and its shadow.
	Transfer() shadow.Transfer
	// Unwanted says that no function has shadows, so nothing has to be kept for the next one. It must
	// not block.
	Unwanted()
	// Tell tells a body which part its shadows hold and where they are; none makes it compute
	// alone.
	Tell(ctx context.Context, body cluster.Instance, part string, shadows []cluster.Instance) error
	// Pair records that a shadow is given to another body, for the replicas that follow and the next
	// provider.
	Pair(ctx context.Context, shadow, body cluster.InstanceID) error
	// Look asks a body about the shadows that it was told of.
	Look(ctx context.Context, body cluster.Instance, shadows []cluster.Instance) (ShadowReport, error)
}

// ShadowReport is what a body says of its shadows.
type ShadowReport struct {
	// Useless are those that do not help it now: it has no connection to them, or they are far too slow.
	Useless []cluster.InstanceID
	// Counted is since the body's start. Weights is the size of the weights that it maps in bytes.
	Counted metrics.ShadowCounts
	Weights int64
}

const (
	// pairWeight is that of the latest execution in a pair's mean times.
	pairWeight = 0.1
)

// pairs tells bodies where their shadows are, and the engine which instances can have some.
type pairs struct {
	// shadows is nil if the backend starts none.
	shadows   Shadows
	mu        *sync.Mutex
	keeper    *keeper.Keeper[*instance]
	finder    *latency.Finder
	functions map[string]*function
	// leads reports whether this replica starts and stops instances.
	leads func() bool
	wake  func()
}

// parts are what is known of an artefact's shadows. The zero value means that this is to be found.
type parts struct {
	// divisions are the parts for shadows of its instances, by share.
	divisions []pairing.Division
	// undivided is why there are none by the model's layers, "" otherwise. failed is why the last
	// attempt to find them failed.
	undivided, failed string
	// earlier are the divisions before an update, until there are new ones.
	earlier []pairing.Division
}

// shown are the divisions whose pairs have shown how slow they are.
func (p *parts) shown() []pairing.Division {
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
	for i := range p.divisions {
		d := &p.divisions[i]
		for k := range earlier {
			if x := &earlier[k]; x.CPU == d.CPU && x.Part == d.Part {
				d.Inherit(x)
			}
		}
	}
}

// rejoin makes bodies count as pairs by the artefact's present divisions, by share and part. The lock is held.
func rejoin(fn *function, a *artefact) {
	for _, in := range fn.Instances {
		if in.helped == nil || in.own() != a {
			continue // Without a shadow, or of an earlier model.
		}
		if d := a.division(in.helped.CPU, in.helped.Part); d != nil && d != in.helped {
			in.helped = d
			in.Up()
		}
	}
}

// known reports whether nothing is to be found.
func (p *parts) known() bool { return len(p.divisions) > 0 || p.undivided != "" }

// division is the way to help instances with a share, nil if there is none. part is what the shadow
// holds, "" for any.
func (a *artefact) division(cpu int, part string) *pairing.Division {
	for i := range a.divisions {
		if d := &a.divisions[i]; d.CPU == cpu && (part == "" || d.Part == part) {
			return d
		}
	}
	return nil
}

// unwanted says so if no function has shadows. The lock is held.
func (c pairs) unwanted() {
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
func (c pairs) look(now time.Time, fn *function, f *scaling.Function) {
	if fn.Inference.Shadow == "" && len(fn.shadows.Instances) == 0 && !fn.paired {
		return
	}
	for _, s := range fn.shadows.Sorted() {
		if s.There() {
			fn.shadows.Failures.Serves(now, s.ReadyAt)
		}
	}
	for _, a := range fn.artefacts {
		for i := range a.divisions {
			a.divisions[i].Forget(now)
		}
	}
	f.Shadows, f.Pairings, f.ShadowsFirst = shadowsSeen(fn), pairings(fn), fn.Inference.Shadow == annotation.ShadowAlways
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
		for i := range a.divisions {
			d := &a.divisions[i]
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

// Pair implements [systems.Driver].
func (c driver) Pair(p scaling.Pair) {
	in, ok := c.keeper.Instance(p.ID)
	if !ok || in.Role != cluster.Shadow {
		return
	}
	if in.Body = p.Body; c.options.Shadows == nil {
		return
	}
	c.keeper.Begin(func() {
		if err := c.options.Shadows.Pair(c.keeper.Context(), p.ID, p.Body); err != nil && c.keeper.Context().Err() == nil {
			c.options.Logger.Warn().Str("instance", string(p.ID)).Err(err).Msg("could not record a shadow's body; the next provider pairs it again")
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
				mapped[at] = max(mapped[at], d.Pair.Weights)
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
func (in *instance) help(d *pairing.Division) {
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
func (c pairs) shadowless(f *provider.Function, m Model) string {
	if c.shadows == nil {
		return "this backend starts no shadows"
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

// check refuses a deployment that asks for shadows which it cannot have. One that was accepted before its
// model's layers were known goes on, without shadows: it serves.
func (c pairs) check(ctx context.Context, f *provider.Function, models []Model) error {
	if f.Inference.Shadow != annotation.ShadowAlways {
		return nil
	}
	why := "the function has no model yet"
	for _, m := range models {
		if why = c.shadowless(f, m); why == "" && !f.Restored {
			why = c.finder.Undivided(ctx, f, m.File)
		}
		if why == "" {
			return nil
		}
	}
	return &annotation.Error{Key: annotation.InferShadow, Value: f.Inference.Shadow, Why: why + "; leave it out, or set it to " + annotation.ShadowAuto}
}

// divide finds the layer profiles of the revision's models and chooses the parts of their shadows. It
// leaves out what an earlier call found, and reports whether nothing is left to be found.
func (c preparation) divide(ctx context.Context) (known bool) {
	if c.Inference.Shadow == "" {
		return true
	}
	known = true
	for _, t := range c.all {
		c.mu.Lock()
		a := c.served(t)
		open := a != nil && a.shadowless == "" && !a.known()
		if a != nil {
			replacePlain(c.fn, a)
		}
		c.mu.Unlock()
		if !open {
			continue
		}
		found := c.partsOf(ctx, t)
		if ctx.Err() != nil {
			return false
		}
		known = known && found.known()
		c.mu.Lock()
		if a := c.served(t); a != nil {
			a.take(found)
			rejoin(c.fn, a)
			replacePlain(c.fn, a)
			c.Wake()
		}
		c.mu.Unlock()
	}
	return known
}

// served is the artefact of a task if the revision is served with it, otherwise nil. The lock is held.
func (c preparation) served(t *task) *artefact {
	if c.fn.Function != c.Function {
		return nil
	}
	return c.fn.artefact(t.Name)
}

// partsOf chooses the parts for the shadows of one model.
func (c preparation) partsOf(ctx context.Context, t *task) parts {
	m, err := c.finder.Layers(ctx, c.Function, t.File)
	for errors.Is(err, latency.ErrFollowing) && backoff.Wait(ctx, followPause) {
		m, err = c.finder.Layers(ctx, c.Function, t.File)
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, latency.ErrStored) {
		c.fn.log.Warn().Err(err).Str("variant", t.Name).Msg("the model's instances have no shadows")
	}
	switch {
	case errors.As(err, new(*shadow.UndividedError)):
		return parts{undivided: err.Error()}
	case err != nil:
		return parts{failed: err.Error()}
	}
	rules := c.fn.rules
	x := pairing.Divider{Model: m, Transfer: c.options.Shadows.Transfer(), Limits: rules.Limits(c.Function), Planned: scaling.Function{SLO: rules.Planned(c.Function), Percentile: c.Inference.Percentile, Queue: rules.Queue(c.Function)}}
	c.mu.Lock()
	if a := c.fn.artefact(t.Name); a != nil {
		x.Planned.Configs = slices.Clone(a.promised)
	}
	c.mu.Unlock()
	found, err := x.Divide()
	switch {
	case err != nil:
		return parts{undivided: err.Error()}
	case len(found) == 0:
		return parts{undivided: "a shadow would gain too little on any share"}
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
	var d *pairing.Division
	whole := int64(0)
	for _, a := range fn.artefacts {
		for i := range a.divisions {
			if x := &a.divisions[i]; d == nil || x.CPU > d.CPU {
				d, whole = x, a.profile.Memory
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
	const mib = 1 << 20
	text := fmt.Sprintf("shadows: %d for %d instances; beside %dm one holds the blocks %s with %d MiB of weights, and takes %d MiB; a whole instance needs %d MiB",
		len(fn.shadows.Instances), len(fn.Instances), d.CPU, d.Part, d.Pair.Weights/mib, d.Config.Memory/mib, whole/mib)
	if fn.Inference.Shadow == annotation.ShadowAuto {
		text += fmt.Sprintf("; they start where that is the cheapest: a node's instances share the weights, so a shadow takes %d MiB more and a whole instance %d", d.Own()/mib, d.Whole()/mib)
	}
	for _, in := range fn.Sorted() {
		if in.refused > 0 {
			return text + "; an instance has none for a time: " + in.refusal
		}
	}
	return text
}
