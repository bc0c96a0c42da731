package batch

import (
	"errors"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// Neither BATCH nor INFless says what it costs to change the config of all instances.
// BATCH's platform starts a function's instances for each batch again, and INFless has
// several configs side by side. Here one set of instances is held while the next starts,
// and requests that come meanwhile are late. So the present choice stays while it meets the
// objective, unless another one costs so much less, for so long, that the exchange pays.
// Batch size and timeout belong to the buffer; instances can stay when they change.
const (
	// exchangeRatio is how many times as much as another choice the present one must cost
	// to be exchanged. retimeRatio is the same for another timeout of the same config.
	exchangeRatio, retimeRatio = 1.5, 1.05
	// exchange is how long both sets of instances are held: once for the exchange, and
	// once for the way back when the load is as before again.
	exchange = 2 * 10 * time.Second
)

// plan returns the choice that the function should have. If the present choice no longer
// meets the objective, even with other batches, plan takes the best one. If nothing meets
// the objective, it takes only one that is clearly nearer to it.
func (x *tunerSearch) plan() (Plan, error) {
	since := x.since
	x.since = time.Time{}
	held, ok := x.held()
	if ok && x.meets(held) {
		if other, found := x.cheaper(held, since); found {
			return other, nil
		}
		return held, nil
	}
	best, err := Solve(x.objective, x.shares)
	if ok && err == nil && best.Short != nil && x.distance(held)/x.distance(best) < exchangeRatio {
		return held, nil
	}
	return best, err
}

// meets reports whether a plan meets the objective. A plan also counts if it lacks only
// instances, and there is room for as many as are worth being held ready.
func (x *tunerSearch) meets(plan Plan) bool {
	room := x.shares[plan.Best.Share].Instances
	return plan.Short == nil || errors.Is(plan.Short, ErrRoom) && Ready(plan.Best.Busy) <= room
}

// held returns the plan for the present resources: with the present timeout, with another
// one, or with other batches. ok is false if nothing can be kept.
func (x *tunerSearch) held() (plan Plan, ok bool) {
	now := slices.IndexFunc(x.configs, func(c cluster.Config) bool { return c.Keeping(x.present).Resources == x.present.Resources })
	if now < 0 || x.present.Batch < 1 {
		return plan, false
	}
	same := Only(x.shares, now, x.present.Batch)
	if slices.Contains(x.shares[now].Batches, x.present.Batch) {
		if plan, err := Check(x.objective, same, Choice{Share: now, Batch: x.present.Batch, Timeout: x.timeout}); err == nil && x.meets(plan) {
			return x.retuned(plan, now), true
		}
		var err error
		if plan, err = Solve(x.objective, same); err == nil && x.meets(plan) {
			return plan, true
		}
		ok = err == nil
	}
	other, err := Solve(x.objective, Only(x.shares, now, x.shares[now].Batches...))
	if err == nil && (x.meets(other) || !ok) {
		return other, true
	}
	return plan, ok
}

// retuned returns the plan, or a cheaper one on the same resources: with another timeout if
// that is better by retimeRatio, or with other batches if they are by exchangeRatio.
func (x *tunerSearch) retuned(plan Plan, share int) Plan {
	for _, to := range []struct {
		batches []int
		worse   float64
	}{{[]int{x.present.Batch}, retimeRatio}, {x.shares[share].Batches, exchangeRatio}} {
		o := x.objective
		o.Below = plan.Best.Cost / to.worse
		other, err := Solve(o, Only(x.shares, share, to.batches...))
		if err == nil && other.Short == nil && x.worse(plan, other) >= to.worse {
			plan = other
		}
	}
	return plan
}

// worse is the ratio of a request's costs under two plans. With a budget it is the ratio of
// latencies.
func (x *tunerSearch) worse(plan, other Plan) float64 {
	if x.objective.Budget > 0 {
		return plan.Best.Percentile.Seconds() / other.Best.Percentile.Seconds()
	}
	return plan.Best.Cost / other.Best.Cost
}

// distance measures how far a plan is from an objective that it misses. It is the busy part
// of the instances that have room, or the cost over the budget, or the percentile over the
// objective.
func (x *tunerSearch) distance(plan Plan) float64 {
	switch {
	case errors.Is(plan.Short, ErrRoom):
		return plan.Best.Busy / float64(x.shares[plan.Best.Share].Instances)
	case errors.Is(plan.Short, ErrBudget):
		return plan.Best.Cost / x.objective.Budget
	}
	return plan.Best.Percentile.Seconds() / x.objective.SLO.Seconds()
}

// cheaper returns the best plan, and whether instances should be exchanged for it: it must
// have been better than held, by exchangeRatio, for long enough since since.
func (x *tunerSearch) cheaper(held Plan, since time.Time) (Plan, bool) {
	o := x.objective
	o.Below = held.Best.Cost / exchangeRatio
	other, err := Solve(o, x.shares)
	if err != nil || other.Short != nil || x.worse(held, other) < exchangeRatio {
		return other, false
	}
	if x.room == nil {
		return other, true // Each batch has its own instance.
	}
	if !x.meetsAtPeak(other) && x.meetsAtPeak(held) {
		x.due = x.now.Add(peakMemory)
		return other, false
	}
	if since.IsZero() {
		since = x.now
	}
	due := since.Add(payback(x.worse(held, other)))
	if !x.now.Before(due) {
		return other, true
	}
	x.since, x.due = since, due
	return other, false
}

// payback is the time after which an exchange for a choice that costs r times less has paid
// for itself. An exchange costs both sets of instances while it lasts, which is (r + 1) times
// the new set's cost. Each second saves (r − 1) times the new set's cost. At half the cost,
// r = 2, it takes three times as long as the exchange and the one back, a minute. At r = 1.5
// it takes five times as long.
func payback(r float64) time.Duration {
	return time.Duration(float64(exchange) * (1 + 2/(max(r, exchangeRatio)-1)))
}

// meetsAtPeak reports whether a plan's config, with any timeout, also meets the objective at
// the recent peak load. Otherwise all instances would be exchanged again as soon as that
// load comes back.
func (x *tunerSearch) meetsAtPeak(plan Plan) bool {
	if x.peak.Rate <= x.objective.Rate*retune {
		return true
	}
	o := x.objective
	o.Rate, o.Arrivals = x.peak.Rate, x.peak.Arrivals
	return Bears(o, x.shares, plan.Best)
}
