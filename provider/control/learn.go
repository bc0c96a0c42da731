package control

import (
	"cmp"
	"math"
	"time"

	"github.com/faas-infer/faas-infer/provider/decisions"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// learn reads what the function's instances have executed since the last look and, when a
// correction is due, corrects the artefacts' times by it. movable reports whether an instance may be moved away
// from what interferes with it. The lock is held.
func learn(now time.Time, fn *function, movable func(*instance) bool) {
	fn.fallBack()
	fn.executed = fn.replica.Executed(fn.Name, fn.dispatcher.Executed(fn.executed[:0]))
	if !fn.measured() {
		return
	}
	for _, e := range fn.executed {
		in, ok := fn.Instances[e.Instance]
		if ok && in.helped == nil && in.sameShare(now) {
			in.tally.add(e, capacity.ShareOf(in.Config), len(in.table))
		}
		if ok && in.helped != nil {
			in.executedAsPair(now, e)
		} else if ok && in.sameShare(now) {
			if p := in.pace(); p != nil {
				in.executed(p, e, movable(in))
			}
		}
	}
	for _, a := range fn.artefacts {
		due, changed := a.correct(now, fn.steering.Troubled())
		if !due {
			continue
		}
		if changed {
			fn.replan(a)
		}
		a.candidates = a.named(a.lead.means.Candidates(a.lead.times.Profile(), a.candidates))
		fn.classing.stale = true
		fn.recordRatios()
	}
}

// replan gives the engine and the instances an artefact's corrected times if they differ
// from the earlier ones. It restarts nothing: the engine decides about that in the same look.
func (fn *function) replan(a *artefact) {
	if before, changed := a.replan(fn.Function, fn.rules, fn.types); changed {
		event := fn.log.Info()
		if a.plan.Slow != "" && before.Slow == "" {
			event = fn.log.Warn().Str("why", a.plan.Slow)
		}
		event.Msg("the model's times were corrected")
		if f, told := correctionOf(fn, a), cmp.Or(a.toldRatio, 1); f.Ratio > 0 && math.Abs(f.Ratio-told) >= minTold*told {
			a.toldRatio = f.Ratio
			decided(fn, time.Now(), decisions.Correct, f)
		}
		fn.steering.Corrected(slower(before.Candidates, a.candidates, fn.Sorted()))
	}
	for _, in := range fn.Sorted() {
		in.refit()
	}
}

// minTold is the least change of the ratio of an artefact's times to the predicted ones, as a part of it, that is
// added to the decisions.
const minTold = 0.1

// correctionOf returns the fields of the decision to correct an artefact's times: the largest ratio of a config that serves.
func correctionOf(fn *function, a *artefact) (f decisions.Fields) {
	for _, in := range fn.Instances {
		if p := in.pace(); p != nil && in.own() == a && in.There() {
			ratio, _ := p.times.Ratio(capacity.ShareOf(in.Config)) // 0 if nothing is known.
			f.Ratio = max(f.Ratio, ratio)
		}
	}
	if a.Name != onlyModel {
		f.Variant = a.Name
	}
	return f
}

// recordRatios sets the metric of measured by predicted time, for each config that serves. Where
// nodes differ it is the largest.
func (fn *function) recordRatios() {
	type serving struct {
		config string
		on     *pace
	}
	ratios, asked := map[string]float64{}, map[serving]bool{}
	for _, in := range fn.Instances {
		// Instances with the same config have the same times on nodes of a type.
		p := in.pace()
		if p == nil || asked[serving{in.config, p}] || !in.There() {
			continue
		}
		asked[serving{in.config, p}] = true
		if ratio, ok := p.times.Ratio(capacity.ShareOf(in.Config)); ok {
			ratios[in.config] = max(ratios[in.config], ratio)
		}
	}
	for config := range fn.ratios {
		if _, ok := ratios[config]; !ok {
			fn.Metrics.SetExecRatio(config, 0)
		}
	}
	for config, ratio := range ratios {
		fn.Metrics.SetExecRatio(config, ratio)
	}
	fn.ratios = ratios
}
