package batch

import (
	"errors"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/papers/batch/arrival"
	"github.com/faas-infer/faas-infer/papers/batch/latency"
)

// Share is one amount of resources that instances could have.
type Share struct {
	// Cost is the price of a second of execution, Call that of each batch.
	Cost, Call float64
	// Exec[k-1] is the time of a batch of k; it never decreases with k.
	Exec []time.Duration
	// Batches has the batch sizes to consider, each with a time.
	Batches []int
	// Instances is the maximum number of instances; 0 means one for each batch, as on
	// BATCH's platform.
	Instances int
}

// offers reports whether a batch size is to be considered and has a time.
func (s Share) offers(b int) bool { return b <= len(s.Exec) && slices.Contains(s.Batches, b) }

// Objective is the goal of a search. With an SLO alone it is Eq. 2: the cheapest request
// whose percentile meets the SLO. With a budget it is Eq. 3: the lowest percentile that the
// budget buys; if there is an SLO, too, it must be met.
type Objective struct {
	// Arrivals is the process of the requests; nil means Poisson with Rate per second.
	Arrivals *arrival.MAP
	Rate     float64
	// Recorded has the gaps in s, in their order, to which Arrivals was fitted; fewer than
	// some hundreds are ignored. If the fitted process differs from them, the plan is made
	// from the gaps themselves.
	Recorded []float64
	// SLO bounds the latency of the part Quantile of all requests, 0.99 for the 99th
	// percentile; 0 means no bound.
	SLO      time.Duration
	Quantile float64
	// Spread is the standard deviation of the logarithm of execution times. Share.Exec
	// has the means.
	Spread float64
	// Budget is the maximum mean cost of a request; 0 means no bound.
	Budget float64
	// Below, without a budget, is an upper bound for the cost of a request; 0 means no
	// bound. It makes the search much faster for a caller that keeps its choice unless
	// another one costs clearly less: see [ErrBelow].
	Below float64
	// Steps is the number of parts into which the search divides the longest timeout, the
	// SLO; 0 means [DefaultSteps].
	Steps int
	// replayed replaces Arrivals.
	replayed *latency.Trace
	// timeouts has the timeouts to try; nil means all.
	timeouts []time.Duration
}

// DefaultSteps makes 49 timeouts.
const DefaultSteps = 48

// Choice is a share with its batch size and timeout, and the predictions for it.
type Choice struct {
	// Share is the index of the share, Batch B and Timeout T.
	Share   int
	Batch   int
	Timeout time.Duration
	// Cost is the cost of one request. MeanBatch is the mean batch size.
	Cost, MeanBatch float64
	// Within is the part of the requests that is predicted to be answered within the SLO;
	// 0 without an SLO.
	Within float64
	// Percentile is P_i, if the search needed it: for the best choice, and if latency is
	// minimised.
	Percentile time.Duration
	// Busy is the mean number of instances that execute. Instances is the least number
	// that is predicted to meet the objective although batches wait for a free one. It is
	// 0 if there is an instance for each batch. Within and Percentile are for this number.
	Busy      float64
	Instances int
}

// Plan is the answer to an objective.
type Plan struct {
	// Best is the best choice. If nothing meets the objective, it is the nearest one. With
	// an SLO out of reach, it has the lowest percentile, which is the lowest SLO that could
	// be met. With a budget out of reach, it is the cheapest that meets the SLO, and its
	// cost is the lowest budget.
	Best Choice
	// Short says what is out of reach. It is nil if Best meets the objective.
	Short error
	// Phases is the number of phases of the arrivals for which latencies were predicted. It
	// is 0 if the prediction is from the recorded requests.
	Phases int
}

// The goals that can be out of reach.
var (
	ErrSLO    = errors.New("no choice meets the SLO")
	ErrBudget = errors.New("no choice stays within the budget")
	ErrRoom   = errors.New("no choice has enough instances")
	// ErrBelow is the error of [Solve] if no choice that meets the objective costs less
	// than Objective.Below.
	ErrBelow = errors.New("no choice that meets the objective costs less")
)

// errNothing is the error of a search without any choice.
var errNothing = errors.New("there is no share with a batch size and a time to choose from")

// Solve searches all shares, batch sizes and timeouts (BATCH §IV: “solved via exhaustive
// search”), with the exact distribution of latencies, for the best choice.
//
// Solve does not consider a batch whose execution alone takes longer than the SLO, or a
// timeout after which a lone request would be late: a change of load must not make all
// requests late at once. If costs are equal, or differ by at most a thousandth, it takes the
// smaller batch, then the shorter timeout, the lower cost and the first share. If a share has
// a bounded number of instances, a choice must meet the objective although batches wait for a
// free one; Solve tries the cheapest first.
//
// Solve fails if the arrivals are not valid or there is nothing to choose from.
func Solve(o Objective, shares []Share) (Plan, error) {
	plan, err := solve(o, shares)
	if err != nil || len(o.Recorded) < minRecorded {
		return plan, err
	}
	return o.reconsider(plan, shares)
}

// solve is Solve with the arrivals as they were given.
func solve(o Objective, shares []Share) (Plan, error) {
	s, err := newSearch(o, shares)
	if err != nil {
		return Plan{}, err
	}
	if err := s.all(); err != nil {
		return Plan{}, err
	}
	if s.below() && !s.found {
		return Plan{}, ErrBelow
	}
	if s.bounded() {
		return s.staffed()
	}
	return s.plan()
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
