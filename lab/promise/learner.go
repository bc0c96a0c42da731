package promise

import (
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/lab/sim"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/profiler/correction"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/latency"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/steering"
)

// predictor knows how long batches take. [correction.Correction] is one.
type predictor interface {
	Observe(now time.Time, seen []correction.Observation)
	Update(now time.Time) (changed bool)
	Profile() *profiler.Profile
	Table(maxBatch int, on profiler.Share) []time.Duration
}

// The controller's periods (provider/control, pace.go).
const (
	period         = time.Second
	troubledPeriod = 250 * time.Millisecond
)

// learner learns as the provider's controller does, with any predictor. It implements [sim.Learner].
type learner struct {
	function *provider.Function
	rules    latency.Rules
	profile  *profiler.Profile
	times    predictor
	truth    truth
	means    latency.Means
	// promised are the times of the predictor's profile.
	promised prediction
	// steers says that misses change the load that is planned for.
	steers bool
	loop   steering.Loop

	candidates []capacity.Candidate
	// scale multiplies all times while no config meets the objective, 0 for none.
	scale     float64
	slow      bool
	observed  []correction.Observation
	corrected time.Time
	// serving are the configs of instances since the last plan.
	serving map[cluster.Config]bool
}

// newLearner returns the learner of a function with a percentile.
func newLearner(
	slo time.Duration, percentile float64, o capacity.Options, t truth, p *profiler.Profile, times predictor,
) *learner {
	f := &provider.Function{Name: "f"}
	f.Inference.SLO, f.Inference.Percentile, f.Inference.PercentileStated = slo, percentile, true
	f.Inference.IsInference, f.Inference.MaxBatch = true, largest
	l := &learner{
		function: f, rules: latency.Rules{Policy: batching.SharedName, Scaling: o}, profile: p, times: times, truth: t,
		means: latency.Means{}, serving: map[cluster.Config]bool{},
	}
	l.plan()
	return l
}

// Executed implements [sim.Learner].
func (l *learner) Executed(_ time.Time, c cluster.Config, batch int, took time.Duration) {
	_, beside := l.truth.engine(batch)
	on := capacity.ShareOf(c)
	l.observed = append(l.observed, correction.Observation{
		Share: on, Batch: batch, Exec: took, Beside: microseconds(beside),
	})
	if p := l.times.Profile(); l.promised.profile != p {
		l.promised = newPrediction(p)
	}
	l.means.Observe(on, batch, took, l.promised.all(on))
}

// Look implements [sim.Learner].
func (l *learner) Look(now time.Time, seen steering.Seen) sim.Lesson {
	changed := l.correct(now)
	lesson := sim.Lesson{Objective: l.rules.Planned(l.function), Level: 1, Changed: changed}
	if l.steers {
		seen.Full = seen.Full || l.slow
		l.loop.Look(now, seen)
		lesson.Level, lesson.Credit = l.loop.Level(), l.loop.Credit()
	}
	lesson.Candidates = l.candidates
	return lesson
}

// correct corrects the times if that is due, and reports whether they have changed.
func (l *learner) correct(now time.Time) (changed bool) {
	l.times.Observe(now, l.observed)
	fresh := len(l.observed) > 0
	l.observed = l.observed[:0]
	pause := period
	if l.loop.Troubled() {
		pause = troubledPeriod
	}
	if !fresh || now.Sub(l.corrected) < pause {
		return false
	}
	l.corrected = now
	before := l.times.Profile()
	if l.times.Update(now) {
		if l.times.Profile() != before {
			l.means = latency.Means{}
		}
		was := l.candidates
		changed = l.plan()
		if by := l.slower(was); changed && by > 1 {
			l.loop.Corrected(by)
		}
	}
	l.candidates = l.means.Candidates(l.times.Profile(), l.candidates)
	return changed
}

// plan makes the candidates from the predictor's times, and reports whether their times have changed.
func (l *learner) plan() (changed bool) {
	p := *l.times.Profile()
	p.Memory = l.profile.Memory
	shares := p.Shares(1000)
	tables := map[profiler.Share][]time.Duration{}
	var all []capacity.Candidate
	fastest := time.Duration(0)
	for _, c := range capacity.Candidates(p.Candidates(shares, largest, 256<<20)) {
		on := capacity.ShareOf(c.Config)
		if tables[on] == nil {
			tables[on] = l.times.Table(largest, on)
		}
		if c.Exec = tables[on][c.Config.Batch-1]; fastest == 0 || c.Exec < fastest {
			fastest = c.Exec
		}
		all = append(all, c)
	}
	meets := slices.DeleteFunc(slices.Clone(all), func(c capacity.Candidate) bool {
		return l.rules.Usable(l.function, tables[capacity.ShareOf(c.Config)]) == 0
	})
	slo := l.function.Inference.SLO
	l.slow = len(meets) == 0
	scale := 0.0
	if l.slow {
		// As [latency.Rules.Plan] does.
		scale = min(1, 0.95*(slo-batching.Travel(slo)).Seconds()/fastest.Seconds())
		for i := range all {
			all[i].Exec = time.Duration(scale * float64(all[i].Exec))
		}
		meets = all
	}
	alike := func(a, b capacity.Candidate) bool { return a.Config == b.Config }
	same := scale == l.scale && slices.EqualFunc(l.candidates, meets, alike)
	if same && !correction.Differ(times(l.candidates), times(meets)) {
		return false
	}
	l.candidates, l.scale = l.means.Candidates(l.times.Profile(), meets), scale
	return true
}

func times(of []capacity.Candidate) []time.Duration {
	out := make([]time.Duration, len(of))
	for i := range of {
		out[i] = of[i].Exec
	}
	return out
}

// slower is the smallest factor by which the times of serving configs grew since before.
func (l *learner) slower(before []capacity.Candidate) float64 {
	least := 0.0
	for _, was := range before {
		for _, is := range l.candidates {
			if was.Config == is.Config && l.serving[is.Config] {
				if by := float64(is.Exec) / float64(was.Exec); least == 0 || by < least {
					least = by
				}
			}
		}
	}
	clear(l.serving)
	return max(1, least)
}

// Table implements [sim.Learner].
func (l *learner) Table(c cluster.Config) []time.Duration {
	return latency.Plan{Scale: l.scale}.Scaled(l.times.Table(c.Batch, capacity.ShareOf(c)))
}

// Full implements [sim.Learner].
func (l *learner) Full(c cluster.Config) (batch int, exec, mean time.Duration) {
	l.serving[c] = true
	table := l.Table(c)
	usable := l.rules.Usable(l.function, table)
	if usable == 0 {
		return 0, table[0], 0
	}
	batch = 1
	for batch*2 <= usable {
		batch *= 2
	}
	if usable == len(table) {
		batch = usable
	}
	exec = table[batch-1]
	return batch, exec, l.means.Of(l.times.Profile(), capacity.ShareOf(c), batch, exec)
}
