package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/backoff"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
	"github.com/faas-infer/faas-infer/provider/keeper"
	"github.com/faas-infer/faas-infer/provider/latency"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// task is one model of a revision on its way to its full profile.
type task struct {
	Model
	// prepared and profile are the latest result, "" and nil before the first.
	prepared string
	profile  *profiler.Profile
	// tries counts the attempts, failures those in a row that failed. why is the latest
	// failure, "" after a success. The next attempt is not before next. refused is the hash of the
	// model's file for which another attempt would fail, too; "" if it might not.
	tries, failures int
	why, refused    string
	next            time.Time
}

// maxFailures is a number of failures after which pause is the longest.
const maxFailures = 20

// pause returns how long to wait after the n-th failure in a row to measure a model or to
// change a quota: 1 s, 2 s, 4 s, …, at most five minutes.
func pause(n int) time.Duration { return backoff.Pause(n, time.Second, 5*time.Minute) }

const (
	// A replica that follows looks every followPause whether the leader has found a
	// model's times. After followTimeout it finds them itself. Every followLook it looks whether the
	// leader can divide a model now, or whether it has become the leader itself.
	followPause   = time.Second
	followTimeout = 2 * time.Minute
	followLook    = 10 * time.Second
)

// prepare finds the times of the revision's models and makes the revision the served one. A
// new model is served with a provisional profile first, then with a full one: first all
// models get some profile, then each a full one. prepare repeats failed attempts until ctx
// ends.
func (c preparation) prepare(ctx context.Context) {
	if c.lesson != nil {
		c.attendLesson(ctx, c.untaught, c.lesson)
		return
	}
	if c.again {
		if _, models, err := c.bundles.Models(ctx, c.Function); err == nil {
			c.models = models
		}
	}
	for _, m := range c.models {
		c.all = append(c.all, &task{Model: m})
	}
	more := improvement(c.improver, c.Function, c.bundle) != ""
	c.cutting = more && c.Inference.Partition != "" && !isCut(c.models)
	c.mu.Lock()
	if c.fn.wanted == c.Function {
		c.fn.planning = c.cutting
		c.fn.tell(time.Now())
	}
	c.mu.Unlock()
	if !c.complete(ctx, c.all) {
		return
	}
	known := c.divide(ctx)
	if more {
		c.improve(ctx)
		known = c.divide(ctx)
	}
	for n := 1; !known; {
		pause := followLook
		if c.leads() {
			pause = backoff.Pause(n, generatePause, generateLongest)
			n++
		}
		if !backoff.Wait(ctx, pause) {
			return
		}
		known = c.divide(ctx)
	}
}

// divide finds the layers that the full profiles lack. It reports whether nothing is left to be found.
func (c preparation) divide(ctx context.Context) (known bool) {
	return c.pairs.divide(ctx, c.fn, c.Function, c.models)
}

// complete finds the full profiles of tasks, and serves the revision whenever that changes
// something. It reports whether it found all before ctx ended.
func (c preparation) complete(ctx context.Context, tasks []*task) bool {
	for open := slices.Clone(tasks); len(open) > 0; {
		// The first one that was not tried, otherwise the one that may be tried again soonest.
		t := slices.MinFunc(open, func(a, b *task) int { return a.next.Compare(b.next) })
		if !backoff.Wait(ctx, time.Until(t.next)) {
			return false
		}
		changed := c.attempt(ctx, t)
		if ctx.Err() != nil {
			return false
		}
		open = slices.DeleteFunc(open, func(x *task) bool { return x == t })
		if t.profile == nil || t.profile.Provisional {
			open = append(open, t)
		}
		tried := !slices.ContainsFunc(c.all, func(t *task) bool { return t.tries == 0 })
		switch known := slices.ContainsFunc(c.all, func(t *task) bool { return t.profile != nil }); {
		case known && (changed || t.failures == 1) && (tried || !c.serves()): // Until all are tried, an earlier revision serves as well.
			c.serve(tried)
		case !known && tried && !slices.ContainsFunc(c.all, func(t *task) bool { return t.why == "" }):
			c.fail(failures(c.all))
		}
	}
	return true
}

// attempt tries to find a task's first profile, or the full one if it has a provisional one. Where
// another attempt must fail, it only looks whether the file has changed.
// It reports whether the profile changed.
func (c preparation) attempt(ctx context.Context, t *task) (changed bool) {
	t.tries++
	if t.refused != "" {
		if hash, err := c.finder.Models.Hash(t.File); err == nil && hash == t.refused {
			t.next = time.Now().Add(pause(maxFailures))
			return false
		}
	}
	// After so long the leader has not found the times, so this replica does.
	alone := time.Duration(t.tries)*followPause > followTimeout
	prepared, profile, err := c.find(ctx, t, alone)
	switch {
	case err == nil:
		t.prepared, t.profile, t.failures, t.why, t.next = prepared, mapping(c.mapped, profile, prepared), 0, "", time.Time{}
		t.refused = ""
		return true
	case errors.Is(err, latency.ErrFollowing):
		t.next = time.Now().Add(followPause)
	case ctx.Err() == nil:
		t.failures++
		retry := pause(t.failures)
		c.fn.log.Error().Err(err).Str("variant", t.Name).Dur("retry_ms", retry).Msg("measure model")
		t.why, t.next, t.refused = fmt.Sprintf("the model could not be measured: %v", err), time.Now().Add(retry), ""
		if errors.Is(err, latency.ErrNoSizes) && learns(c.Function) {
			c.mu.Lock()
			wanted := c.fn.wanted == c.Function
			var l *lesson
			if wanted {
				l = c.openLesson(t.File, sizesTried(err))
			}
			c.mu.Unlock()
			if wanted {
				c.attendLesson(ctx, t.File, l)
			}
			return false
		}
		if errors.Is(err, latency.ErrPermanent) || errors.Is(err, latency.ErrNoSizes) { // Only another deployment or file helps.
			t.why, t.next = fmt.Sprintf("the model cannot be served: %v", err), time.Now().Add(pause(maxFailures))
			t.refused, _ = c.finder.Models.Hash(t.File) // It was read a moment ago.
		}
		if errors.Is(err, latency.ErrNoSizes) {
			t.why = noSizes(c.Function, err).Error()
		}
		if t.Name != cluster.Whole {
			t.why = t.Name + ": " + t.why
		}
	}
	return false
}

// noSizes is the answer to a deployment whose model runs with none of the sizes that were tried.
func noSizes(f *provider.Function, err error) *annotation.Error {
	why := "the model has free dimensions and runs with none of the sizes that were tried; set it to the sizes of your requests"
	if f.Inference.Shapes != "" {
		why = "the model does not run with these sizes; set it to the sizes of your requests"
	}
	if detail := sizesTried(err); detail != "" {
		why += " (" + detail + ")"
	}
	return annotation.WrongShapes(f.Inference.Shapes, why)
}

// sizesTried is what an error that wraps [latency.ErrNoSizes] says of the sizes that were tried.
func sizesTried(err error) string {
	_, detail, _ := strings.Cut(err.Error(), latency.ErrNoSizes.Error()+": ")
	return detail
}

// mapping returns a profile that says what instances of the prepared model map together. Its path names
// that: a function's instances, and those of others with the same model, have loaded it from there.
func mapping(mapped func(prepared string) int64, p *profiler.Profile, prepared string) *profiler.Profile {
	if mapped == nil || p.Members() > 1 {
		return p
	}
	with := *p
	if bytes := mapped(prepared); bytes > 0 {
		with.Mapped = profiler.Mapped{File: filepath.Base(prepared), Bytes: bytes}
	}
	return &with
}

// failures joins why the tasks have failed.
func failures(all []*task) string {
	var why []string
	for _, t := range all {
		why = append(why, t.why)
	}
	return strings.Join(why, "; ")
}

// serves reports whether some revision of the function is served.
func (c preparation) serves() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fn.measured()
}

// find finds the task's profile, or the full one if the present one is provisional.
func (c preparation) find(ctx context.Context, t *task, alone bool) (prepared string, p *profiler.Profile, err error) {
	if t.Profile != nil {
		prepared, err = c.finder.Ready(ctx, c.Function, t.File)
		return prepared, t.Profile, err
	}
	finder := c.trials.finderOf(c.fn, c.revision, t.Model)
	if t.profile != nil {
		return finder.Refine(ctx, c.Function, t.File)
	}
	return finder.Profile(ctx, c.Function, t.File, alone)
}

// fail records why a revision cannot be served, unless a later one is wanted.
func (c preparation) fail(why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fn.wanted == c.Function {
		c.refuse(c.fn, why)
	}
}

// refuse records why the wanted revision cannot be served. The lock is held.
func (c preparation) refuse(fn *function, why string) {
	fn.failed = why
	fn.tell(time.Now())
	if !fn.measured() {
		c.keeper.Dismiss(fn.Name, "its function cannot be served")
	}
	c.wake()
}

// serve makes the revision the served one with the models whose times are known. If all were
// tried and none can meet the objective, it records why.
func (c preparation) serve(tried bool) {
	fn, r := c.fn, c.revision
	found := c.artefacts()
	c.mu.Lock()
	defer c.mu.Unlock()
	if fn.wanted != r.Function {
		return
	}
	var why *annotation.Error
	found = slices.DeleteFunc(found, func(a *artefact) bool {
		refuse := c.settle(a)
		if refuse != nil {
			why = refuse
			fn.log.Error().Err(refuse).Str("variant", a.Name).Msg("the objective cannot be met")
		}
		return refuse != nil
	})
	if !slices.ContainsFunc(found, func(a *artefact) bool { return a.accuracy >= r.Inference.Accuracy }) {
		if why != nil && tried && !c.cutting {
			c.refuse(fn, why.Error())
		}
		return
	}
	if !c.rules.BatchesAlike(fn.Function, r.Function) {
		fn.dispatcher.Reconfigure(r.policy, r.Inference.SLO, r.Inference.Once)
		fn.tuned, _ = r.policy.(*tuned)
	}
	for _, a := range found {
		fn.renumber(r, a)
	}
	if c.again && fn.warmed == fn.Function { // It has had its first instance.
		fn.warmed = r.Function
	}
	before := latest(fn)
	fn.Function, fn.secrets, fn.values = r.Function, r.secrets, r.values
	if latest(fn) != before {
		revise(fn)
	}
	fn.artefacts, fn.unknown, fn.classing.stale = found, nil, true
	for _, t := range c.all {
		if t.profile == nil {
			fn.unknown = append(fn.unknown, t.Model)
		}
	}
	fn.offer()
	fn.counting.Set(found[0].counter)
	fn.failed, fn.Unplaced, fn.Failures = "", "", keeper.Failures{}
	fn.Metrics.SetProvisional(slices.ContainsFunc(found, func(a *artefact) bool { return a.profile.Provisional }))
	fn.Metrics.SetUnbatched(unbatched(found) != "")
	fn.Metrics.SetLevel(fn.steering.Level())
	for _, in := range fn.Instances {
		in.recognise()
		if a := fn.artefact(in.Artefact.Name); a != nil && in.Revision == fn.Revision {
			if p := a.on(c.types.kind(in.Node)); len(a.table(p, in.Config.Batch, capacity.ShareOf(in.Config))) > 0 {
				in.times = p.times
			}
		}
		in.refit()
	}
	fn.tell(time.Now())
	c.claim(fn)
	c.wake()
}

// artefacts makes the artefacts of the models whose times are known.
func (c preparation) artefacts() (found []*artefact) {
	fn, r := c.fn, c.revision
	for _, t := range c.all {
		if t.profile == nil {
			continue
		}
		profile := c.refined(t)
		a := &artefact{
			Artefact: cluster.Artefact{
				Name: t.Name, Bundle: r.bundle, Model: t.prepared, Images: t.Images,
				Shapes: latency.SizesOf(r.Function).Shapes, MaxShapes: r.Inference.MaxShapes,
				MaxLength: r.Inference.MaxLength, RefuseLong: r.Inference.RefuseLong, Text: t.Text,
			},
			of: t.Of, accuracy: t.Accuracy, texts: t.Texts, counter: t.Counter, cut: t.Plan, file: t.File,
			profile: profile, promised: c.rules.Promised(r.Function, profile), reach: c.rules.Reach(r.Function, profile),
		}
		times := c.records.Correction(recordName(r.Name, t.Name, ""), profile, latency.Quantile(r.Function))
		a.paces = []*pace{{profile: profile, times: times, means: latency.Means{}}}
		a.shadowless = c.pairs.shadowless(r.Function, t.Model)
		if a.named(a.promised); t.Plan != nil {
			a.Artefact.Plan = t.Plan.String()
		}
		if !fn.replica.Alone() { // A provider alone recognises its instances by their revision.
			a.fingerprint = fingerprintOf(r.Deployment, r.bundle, t.prepared+a.Artefact.Plan, r.values, c.engine)
		}
		found = append(found, a)
	}
	return found
}

// settle gives an artefact the corrections and parts of the one before and its plan, or returns why the
// objective cannot be met with it. The lock is held.
func (c preparation) settle(a *artefact) (refuse *annotation.Error) {
	r, before := c.revision, c.fn.artefact(a.Name)
	switch {
	case before == nil || before.Model != a.Model:
	case r.Inference.Shadow != "" && c.rules.BatchesAlike(c.fn.Function, r.Function) && c.fn.Inference.Percentile == r.Inference.Percentile && !differ(before.promised, a.promised):
		a.parts = before.parts
	default:
		a.earlier = before.shown()
	}
	if before != nil && before.paces[0].times.Of() == a.paces[0].times.Of() { // The present corrections are newer than the stored ones.
		a.paces = slices.Clone(before.paces)
		for _, p := range a.paces { // The model may have been prepared since.
			same := *p.profile
			same.Memory, same.Own, same.Mapped = a.profile.Memory, a.profile.Own, a.profile.Mapped
			p.profile = &same
		}
	}
	c.types.unlike(c.fn, a, r.Function)
	a.plan = a.join(r.Function, c.rules, &c.types.nodeTypes)
	a.candidates = a.plan.Candidates
	if a.plan.Refuse == nil {
		c.types.aim(a, r.Function)
	}
	return a.plan.Refuse
}

// takesAlike reports whether instances of two artefacts take the same images, sizes and texts.
func takesAlike(a, b cluster.Artefact) bool {
	return a.Images == b.Images && a.Shapes == b.Shapes && a.MaxShapes == b.MaxShapes &&
		a.MaxLength == b.MaxLength && a.RefuseLong == b.RefuseLong && a.Text == b.Text
}

// renumber gives the instances of an artefact the number of the revision that is served from
// now on if they suit it, and none if they have to be replaced. The lock is held.
func (fn *function) renumber(r revision, a *artefact) {
	before := fn.artefact(a.Name)
	switch {
	case before == nil:
	case a.accuracy < r.Inference.Accuracy: // They serve until others are ready, as an earlier revision does.
	case before.Model == a.Model && takesAlike(before.Artefact, a.Artefact) && before.fingerprint == a.fingerprint && slices.Equal(before.promised, a.promised) &&
		maps.Equal(fn.Deployment.EnvVars, r.Deployment.EnvVars) && maps.Equal(fn.secrets, r.secrets) && fn.values == r.values:
		// A deployment that changes nothing, or only the objective, restarts no instance.
		fn.relabel(a.Name, r.Revision)
	case fn.Revision == r.Revision && before.Model != a.Model:
		// The instances have loaded the unprepared model; new ones load the prepared one.
		fn.relabel(a.Name, 0)
	}
}

// refined returns the full profile that replaces a provisional one. If the running instances
// have more memory than it needs, it keeps the provisional profile's memory: then they have
// the same configs as new ones.
func (c preparation) refined(t *task) *profiler.Profile {
	fn, r := c.fn, c.revision
	c.mu.Lock()
	defer c.mu.Unlock()
	a := fn.artefact(t.Name)
	if a == nil || !a.profile.Provisional || t.profile.Provisional || fn.Revision != r.Revision || t.profile.Memory >= a.profile.Memory && (t.profile.Own == 0 || t.profile.Own >= a.profile.Own) {
		return t.profile
	}
	same := *t.profile
	if same.Memory = max(same.Memory, a.profile.Memory); same.Own > 0 { // Otherwise all of what was measured counts.
		same.Own = max(same.Own, a.profile.Own)
	}
	return &same
}

// relabel gives the instances of an artefact that have the current revision, and their shadows, another
// number.
func (fn *function) relabel(artefact string, revision uint64) {
	for _, of := range []*keeper.Fleet[*instance]{&fn.Fleet, &fn.shadows} {
		for _, in := range of.Instances {
			if in.Revision == fn.Revision && in.Artefact.Name == artefact {
				in.Revision = revision
			}
		}
	}
}
