package otp

import (
	"errors"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/batching/arrival"
	"github.com/faas-infer/faas-infer/batching/latency"
)

// Share is one amount of resources that instances could have.
type Share struct {
	// Cost is what it costs per second of execution, Call what each batch costs
	// besides.
	Cost, Call float64
	// Exec[k-1] is the time of a batch of k; it never decreases with k.
	Exec []time.Duration
	// Batches are the batch sizes to be considered, each with a time.
	Batches []int
	// Instances is how many can be had; 0 is as many as there are batches, as on
	// BATCH's platform.
	Instances int
}

// Objective is what is asked for. With an SLO alone it is Eq. 2: the cheapest request
// of which the percentile meets the SLO. With a budget it is Eq. 3: the lowest
// percentile that the budget buys, and where there is an SLO, too, it must be met.
type Objective struct {
	// Arrivals is how requests come; nil is Poisson, Rate times a second.
	Arrivals *arrival.MAP
	Rate     float64
	// Recorded, if there are at least some hundreds, are the gaps in s that Arrivals was
	// fitted to, in their order. Where the fitted process has not got what they have, the
	// plan is made from one of more phases, or from themselves.
	// Composed has the former tried first, which takes long.
	Recorded []float64
	Composed bool
	// SLO bounds the latency of so much of all requests, 0.99 for the 99th
	// percentile; 0 is no bound.
	SLO      time.Duration
	Quantile float64
	// Spread is the standard deviation of the logarithm of execution times, of which
	// Share.Exec are the means.
	Spread float64
	// Budget is the most that a request may cost on average, 0 is no bound.
	Budget float64
	// Below, where there is no budget, is what a request has to cost less than; 0 is no
	// bound. Whoever keeps what they have unless something else costs less by a good deal
	// is answered much sooner with it: see [ErrBelow].
	Below float64
	// Steps is into how many parts the longest timeout, the SLO, is divided in the
	// search; 0 is [DefaultSteps].
	Steps int
	// replayed takes the place of Arrivals.
	replayed *latency.Trace
	// timeouts are those that are tried, nil are all.
	timeouts []time.Duration
}

// DefaultSteps makes 49 timeouts.
const DefaultSteps = 48

// Choice is a config with its batch size and timeout, and what is predicted of it.
type Choice struct {
	// Share is the index of the share, Batch B and Timeout T.
	Share   int
	Batch   int
	Timeout time.Duration
	// Cost is that of one request, MeanBatch how many a batch has.
	Cost, MeanBatch float64
	// Within is the part of the requests that are predicted to be answered within
	// the SLO; 0 without an SLO.
	Within float64
	// Percentile is P_i, where the search had to know it: of the best choice, of
	// runners-up, and wherever latency is minimised.
	Percentile time.Duration
	// Busy is how many instances execute something on average. Instances is the least
	// number of them that is predicted to meet the objective, whatever batches wait for
	// one; 0 where there are as many as batches. Within and Percentile are then for
	// this number.
	Busy      float64
	Instances int
}

// Plan is the answer to an objective.
type Plan struct {
	// Best is the choice. Where nothing meets the objective it is the nearest that
	// can be met: with an SLO out of reach, the choice with the lowest percentile,
	// which is the lowest SLO that could be asked for; with a budget out of reach,
	// the cheapest that meets the SLO, whose cost is the lowest budget.
	Best Choice
	// Short says what is out of reach; it is nil if Best meets the objective.
	Short error
	// Runners are the next best, each of another share or batch size, in the order
	// of preference.
	Runners []Choice
	// Phases is how many the arrivals had that latencies were predicted for; 0 if they
	// are those of the recorded requests.
	Phases int
	search *search
}

// Predict is the distribution of latencies with one of the plan's choices, as the plan
// was made.
func (p *Plan) Predict(c Choice) (*latency.Distribution, error) {
	w, err := p.search.analysis.Waits(c.Batch, c.Timeout.Seconds())
	if err != nil {
		return nil, err
	}
	return p.search.among(c, w)
}

// The goals that can be out of reach.
var (
	ErrSLO    = errors.New("no choice meets the SLO")
	ErrBudget = errors.New("no choice stays within the budget")
	ErrRoom   = errors.New("no choice has enough instances")
	// ErrBelow is what [Solve] ends with where nothing costs less than Objective.Below and
	// meets the objective.
	ErrBelow = errors.New("no choice that meets the objective costs less")
)

// errNothing is what a search over nothing ends with.
var errNothing = errors.New("there is no share with a batch size and a time to choose from")

// Optimise is Solve for those who want the best choice, and nothing else, whether or
// not it meets the objective. Without an SLO and a budget, it is as if the SLO were a
// second. ok is false if there is nothing to choose from.
func Optimise(o Objective, shares []Share) (best Choice, ok bool) {
	if o.SLO <= 0 && o.Budget <= 0 {
		o.SLO = time.Second
	}
	plan, err := Solve(o, shares, 0)
	return plan.Best, err == nil
}

// Solve searches all shares, batch sizes and timeouts (BATCH §IV: “solved via
// exhaustive search”), with the exact distribution of latencies, for the best choice
// and so many runners-up. A batch whose execution alone takes longer than the SLO is
// not considered, nor a timeout after which a request that stayed alone would be
// late: a load that changes must not make all requests late at once. Of choices whose
// costs are equal, or differ by a thousandth at most, the smaller batch, then the
// shorter timeout, the lower cost and the first share is taken. Where a share has a
// bounded number of instances, a choice must meet the objective with batches that wait
// for a free one, too; it is looked for with what costs least first. An error is
// about the arrivals, or says that there is nothing to choose from.
func Solve(o Objective, shares []Share, runners int) (Plan, error) {
	plan, err := solve(o, shares, runners)
	if err != nil || len(o.Recorded) < fewestRecorded {
		return plan, err
	}
	return o.reconsider(plan, shares, runners)
}

// solve is Solve with the arrivals as they were given.
func solve(o Objective, shares []Share, runners int) (Plan, error) {
	s, err := newSearch(o, shares)
	if err != nil {
		return Plan{}, err
	}
	s.keep = runners > 0 || s.bounded()
	if err := s.all(); err != nil {
		return Plan{}, err
	}
	if s.below() && !s.found {
		return Plan{}, ErrBelow
	}
	if s.bounded() {
		return s.staffed(runners)
	}
	return s.plan(runners)
}

// Again is Solve for what the plan's own choices were predicted from, with other shares.
func (p *Plan) Again(shares []Share, runners int) (Plan, error) {
	return solve(p.search.Objective, shares, runners)
}

// sizes lists the batch sizes of all shares.
func sizes(shares []Share) []int {
	var all []int
	for _, s := range shares {
		for _, b := range s.Batches {
			if b >= 1 && b <= len(s.Exec) {
				all = append(all, b)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
