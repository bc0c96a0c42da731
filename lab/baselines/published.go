package systems

import (
	"time"

	"github.com/faas-infer/faas-infer/batching/arrival"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/otp"
)

const (
	// publishedWindow is the length of the window of requests to which BATCH fits a process
	// (§VI-D), and the time between two choices of its optimiser (§V). So each window begins
	// where the last one ended.
	publishedWindow = time.Hour
	// firstWindow is the least window on the authors' machine (§VI-D).
	firstWindow = 10 * time.Second
)

// hourly says when BATCH as published chooses anew, and for which arrivals. The paper does not
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
func (h *hourly) due(now time.Time) (o otp.Objective, ok bool) {
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

// beginHourly is Begin for BATCH as published. Before the first window has ended, the choice is
// for requests that come at random at the present rate.
func (u *Tuner) beginHourly(now time.Time, rate float64) *Search {
	o, ok := u.hours.due(now)
	switch {
	case ok:
	case u.revision == 0:
		o.Rate = rate
	default:
		return nil
	}
	return u.system.publish(u.function, o, u.times)
}

// publish prepares the search of BATCH as published: the whole SLO, no margin, no spread, and
// an instance for every batch.
func (s System) publish(f Function, arrivals otp.Objective, t Times) *Search {
	var all []cluster.Config
	for _, c := range s.predicted(f, t) {
		all = append(all, c.Config)
	}
	arrivals.SLO, arrivals.Quantile, arrivals.Budget = f.SLO, f.quantile(), f.Budget
	x := &Search{slo: f.SLO, objective: arrivals, published: true}
	x.shares, x.configs = Shares(all, func(c cluster.Config) []time.Duration {
		table := make([]time.Duration, c.Batch)
		for k := range table {
			table[k], _ = t.Exec(c, k+1)
			if k > 0 {
				table[k] = max(table[k], table[k-1])
			}
		}
		return table
	}, f.price())
	return x
}

// runPublished is Run for BATCH as published. It has no number of instances: on a cluster the
// engine starts as many as the load needs, and batches may wait for one.
func (x *Search) runPublished() {
	best, err := otp.Published(x.objective, x.shares)
	if err != nil {
		return
	}
	config := x.configs[best.Share]
	config.Batch = best.Batch
	exec := x.shares[best.Share].Exec[best.Batch-1]
	x.list = []capacity.Candidate{tolerated(capacity.Candidate{Config: config, Exec: exec, Mean: exec, Timeout: best.Timeout}, x.slo)}
}

// asPublished considers only the config that BATCH's optimiser as published chooses.
func asPublished(s System, f Function, rate float64, t Times) []capacity.Candidate {
	x := s.publish(f, otp.Objective{Arrivals: f.Arrivals, Rate: rate}, regressed(t))
	x.Run()
	return x.list
}

// regressed returns the times that BATCH's regression estimates from all measured rows
// (§III-A). Its authors fit to less than 3 % of Lambda's 560 settings of a model. A cluster's
// profile has fewer rows than the regression has terms for that. It returns t if there is
// nothing to fit to.
func regressed(t Times) Times {
	var rows []otp.Row
	for _, c := range t.Configs() {
		if at, ok := t.Exec(c, c.Batch); ok && at > 0 {
			rows = append(rows, otp.Row{Batch: c.Batch, Resources: c.Resources, Time: at})
		}
	}
	p, err := otp.FitPolynomial(rows)
	if err != nil {
		return t
	}
	return estimated{t, p}
}

// estimated are the times of regressed.
type estimated struct {
	Times
	polynomial *otp.Polynomial
}

// Exec implements [Times].
func (e estimated) Exec(c cluster.Config, b int) (time.Duration, bool) {
	if _, ok := e.Times.Exec(c, b); !ok {
		return 0, false
	}
	return e.polynomial.At(b, c.Resources), true
}

// Spread implements [Times]. BATCH takes times as deterministic (§VI-B).
func (e estimated) Spread() float64 { return 0 }
