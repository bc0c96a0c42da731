package baselines

import (
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/lab/published"
	paper "github.com/faas-infer/faas-infer/papers/batch"
	"github.com/faas-infer/faas-infer/papers/batch/arrival"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

const (
	// publishedWindow is the length of the window of requests to which BATCH fits a process
	// (§VI-D), and the time between two choices of its optimiser (§V). So each window begins
	// where the last one ended.
	publishedWindow = time.Hour
	// firstWindow is the least window on the authors' machine (§VI-D).
	firstWindow = 10 * time.Second
)

// asPrinted returns BATCH as its authors run it.
func asPrinted() systems.System {
	return core(Batch).Change(BatchPublished, "BATCH as its authors run it: its own latency formula, an instance for every batch, chosen each hour, times by regression", func(r *systems.Rules) {
		r.Margin, r.Choose, r.Believes = 1, asPublished, regressed
		s := systems.New(BatchPublished, "", *r)
		r.Tuner = func(_ systems.System, f systems.Function, t systems.Times) systems.Tuner {
			return &tuner{system: s, function: f, times: regressed(t)}
		}
	})
}

// hourly says when BATCH as published chooses again, and for which arrivals. The paper does not
// say what happens in the first hour. Here the window is then all that has come, and a choice
// is made when it has doubled: after 10, 20, 40 s, … and an hour.
type hourly struct {
	// gaps has the gaps of the window in s. It began with a request at began, and ends length
	// later.
	gaps        []float64
	last, began time.Time
	length      time.Duration
}

// add records a request.
func (h *hourly) add(at time.Time) {
	if h.began.IsZero() {
		h.began, h.length = at, firstWindow
	} else if !h.last.IsZero() {
		h.gaps = append(h.gaps, max(0, at.Sub(h.last).Seconds()))
	}
	h.last = at
}

// due returns the arrivals of the window that has ended. ok is false if none has, or if nothing
// came in it; the choice stays then.
func (h *hourly) due(now time.Time) (o paper.Objective, ok bool) {
	if h.began.IsZero() || now.Sub(h.began) < h.length {
		return o, false
	}
	o.Rate = float64(len(h.gaps)) / now.Sub(h.began).Seconds()
	if m, _, err := arrival.Fit(arrival.MomentsOf(h.gaps)); err == nil {
		o.Arrivals = &m // Otherwise there are too few gaps for more than a rate.
	}
	ok = len(h.gaps) > 0
	if h.length < publishedWindow {
		h.length = min(2*h.length, publishedWindow)
	} else {
		h.began, h.gaps = now, h.gaps[:0]
	}
	return o, ok
}

// tuner chooses for one function by the hours.
type tuner struct {
	system   systems.System
	function systems.Function
	times    systems.Times
	hours    hourly
	list     []capacity.Candidate
	revision uint64
}

// Arrived implements [systems.Tuner].
func (u *tuner) Arrived(at time.Time) { u.hours.add(at) }

// Within implements [systems.Tuner]. The room does not count.
func (u *tuner) Within(systems.Room) {}

// Instances implements [systems.Tuner].
func (u *tuner) Instances() int { return 0 }

// Begin implements [systems.Tuner]. Before the first window has ended, the choice is for requests
// that come at random at the present rate.
func (u *tuner) Begin(now time.Time, rate float64) systems.Search {
	o, ok := u.hours.due(now)
	switch {
	case ok:
	case u.revision == 0:
		o.Rate = rate
	default:
		return nil
	}
	return &search{tuner: u, run: publish(u.system, u.function, o, u.times)}
}

// search is a search of a tuner.
type search struct {
	tuner *tuner
	run   func() []capacity.Candidate
	list  []capacity.Candidate
}

// Run implements [systems.Search].
func (x *search) Run() { x.list = x.run() }

// Take implements [systems.Search].
func (x *search) Take() (list []capacity.Candidate, revision uint64) {
	u := x.tuner
	alike := func(a, b capacity.Candidate) bool { return a.Config.Resources == b.Config.Resources }
	if u.revision == 0 || !slices.EqualFunc(x.list, u.list, alike) {
		u.revision++
	}
	u.list = x.list
	return u.list, u.revision
}

// publish returns the search of BATCH as published: the whole SLO, no margin, no spread, and
// an instance for every batch. It has no number of instances: on a cluster the engine starts as many
// as the load needs, and batches may wait for one.
func publish(s systems.System, f systems.Function, arrivals paper.Objective, t systems.Times) func() []capacity.Candidate {
	var all []cluster.Config
	for _, c := range s.Predicted(f, t) {
		all = append(all, c.Config)
	}
	arrivals.SLO, arrivals.Quantile, arrivals.Budget = f.SLO, f.Quantile(), paper.BudgetOf(f)
	shares, configs := paper.Shares(all, func(c cluster.Config) []time.Duration {
		table := make([]time.Duration, c.Batch)
		for k := range table {
			table[k], _ = t.Exec(c, k+1)
			if k > 0 {
				table[k] = max(table[k], table[k-1])
			}
		}
		return table
	}, paper.PricingOf(f))
	return func() []capacity.Candidate {
		best, err := published.Optimise(arrivals, shares)
		if err != nil {
			return nil
		}
		config := configs[best.Share]
		config.Batch = best.Batch
		exec := shares[best.Share].Exec[best.Batch-1]
		return []capacity.Candidate{systems.Tolerated(capacity.Candidate{Config: config, Exec: exec, Mean: exec, Timeout: best.Timeout}, f.SLO)}
	}
}

// asPublished considers only the config that BATCH's optimiser as published chooses.
func asPublished(s systems.System, f systems.Function, rate float64, t systems.Times) []capacity.Candidate {
	return publish(s, f, paper.Objective{Rate: rate}, regressed(t))()
}

// regressed returns the times that BATCH's regression estimates from all measured rows
// (§III-A). Its authors fit to less than 3 % of Lambda's 560 settings of a model. A cluster's
// profile has fewer rows than the regression has terms for that. It returns t if there is
// nothing to fit to.
func regressed(t systems.Times) systems.Times {
	var rows []published.Row
	for _, c := range t.Configs() {
		if at, ok := t.Exec(c, c.Batch); ok && at > 0 {
			rows = append(rows, published.Row{Batch: c.Batch, Resources: c.Resources, Time: at})
		}
	}
	p, err := published.FitPolynomial(rows)
	if err != nil {
		return t
	}
	return estimated{t, p}
}

// estimated are the times of regressed.
type estimated struct {
	systems.Times
	polynomial *published.Polynomial
}

// Exec implements [systems.Times].
func (e estimated) Exec(c cluster.Config, b int) (time.Duration, bool) {
	if _, ok := e.Times.Exec(c, b); !ok {
		return 0, false
	}
	return e.polynomial.At(b, c.Resources), true
}

// Spread implements [systems.Times]. BATCH takes times as deterministic (§VI-B).
func (e estimated) Spread() float64 { return 0 }
