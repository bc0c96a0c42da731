package systems

import (
	"errors"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/otp"
)

// Neither BATCH nor INFless says what it costs to change the config of all instances:
// BATCH's platform starts a function's instances for each batch anew, and INFless has
// several configs side by side. Here one set of instances is held while the next starts,
// and requests are late that come meanwhile. So what is present is kept while it meets
// the objective, but for what costs less by so much, for so long, that the exchange is
// paid for. Batch size and timeout are the buffer's, for which instances can stay.
const (
	// loyal is how many times as much as something else the present choice must cost
	// before that is looked at, and retimed how many times as much as the same config with
	// another timeout.
	loyal, retimed = 1.5, 1.05
	// exchange is for how long both sets of instances are held, and a second time when the
	// load is as before again.
	exchange = 2 * 10 * time.Second
)

// plan is what the function is to have. Where the present choice does not meet the
// objective any more, and with other batches does not either, that is the best that there
// is; if nothing meets it, only what comes nearer to it by a good deal.
func (x *Search) plan() (otp.Plan, error) {
	since := x.since
	x.since = time.Time{}
	held, ok := x.held()
	if ok && x.does(held) {
		if other, found := x.cheaper(held, since); found {
			return other, nil
		}
		return held, nil
	}
	best, err := otp.Solve(x.objective, x.shares, 0)
	if ok && err == nil && best.Short != nil && x.far(held)/x.far(best) < loyal {
		return held, nil
	}
	return best, err
}

// does reports whether a plan does for the objective, or would with more instances than
// anybody would hold ready, while there is room for those.
func (x *Search) does(plan otp.Plan) bool {
	room := x.shares[plan.Best.Share].Instances
	return plan.Short == nil || errors.Is(plan.Short, otp.ErrRoom) && otp.Ready(plan.Best.Busy) <= room
}

// held is the plan for what instances are now: with the timeout that they have, with
// another, or with other batches on the same resources. ok is false if there is nothing
// that could be kept.
func (x *Search) held() (plan otp.Plan, ok bool) {
	now := slices.IndexFunc(x.configs, func(c cluster.Config) bool { return c.Resources == x.present.Resources })
	if now < 0 || x.present.Batch < 1 {
		return plan, false
	}
	same := otp.Only(x.shares, now, x.present.Batch)
	if slices.Contains(x.shares[now].Batches, x.present.Batch) {
		if plan, err := otp.Check(x.objective, same, otp.Choice{Share: now, Batch: x.present.Batch, Timeout: x.timeout}); err == nil && x.does(plan) {
			return x.retuned(plan, now), true
		}
		var err error
		if plan, err = otp.Solve(x.objective, same, 0); err == nil && x.does(plan) {
			return plan, true
		}
		ok = err == nil
	}
	other, err := otp.Solve(x.objective, otp.Only(x.shares, now, x.shares[now].Batches...), 0)
	if err == nil && (x.does(other) || !ok) {
		return other, true
	}
	return plan, ok
}

// retuned is the plan, or one with another timeout with which a request costs clearly less,
// or with other batches with which it costs less by a good deal.
func (x *Search) retuned(plan otp.Plan, share int) otp.Plan {
	for _, to := range []struct {
		batches []int
		worse   float64
	}{{[]int{x.present.Batch}, retimed}, {x.shares[share].Batches, loyal}} {
		o := x.objective
		o.Below = plan.Best.Cost / to.worse
		other, err := otp.Solve(o, otp.Only(x.shares, share, to.batches...), 0)
		if err == nil && other.Short == nil && x.worse(plan, other) >= to.worse {
			plan = other
		}
	}
	return plan
}

// worse is how many times as much a request costs by one plan as by another, or where
// there is a budget, how many times as long it takes.
func (x *Search) worse(plan, other otp.Plan) float64 {
	if x.objective.Budget > 0 {
		return plan.Best.Percentile.Seconds() / other.Best.Percentile.Seconds()
	}
	return plan.Best.Cost / other.Best.Cost
}

// far is how far a plan is from an objective that it does not meet: which part of the
// instances is busy that there is room for, or how many times the objective the percentile
// is, or the budget the cost.
func (x *Search) far(plan otp.Plan) float64 {
	switch {
	case errors.Is(plan.Short, otp.ErrRoom):
		return plan.Best.Busy / float64(x.shares[plan.Best.Share].Instances)
	case errors.Is(plan.Short, otp.ErrBudget):
		return plan.Best.Cost / x.objective.Budget
	}
	return plan.Best.Percentile.Seconds() / x.objective.SLO.Seconds()
}

// cheaper is the best plan, if it is so much better than what is held, since a time, that
// instances are to be exchanged for it.
func (x *Search) cheaper(held otp.Plan, since time.Time) (otp.Plan, bool) {
	o := x.objective
	o.Below = held.Best.Cost / loyal
	other, err := otp.Solve(o, x.shares, 0)
	if err != nil || other.Short != nil || x.worse(held, other) < loyal {
		return other, false
	}
	if x.room == nil {
		return other, true // Each batch has an instance of its own.
	}
	if !x.bears(other) && x.bears(held) {
		x.due = x.now.Add(trusted)
		return other, false
	}
	if since.IsZero() {
		since = x.now
	}
	due := since.Add(repays(x.worse(held, other)))
	if !x.now.Before(due) {
		return other, true
	}
	x.since, x.due = since, due
	return other, false
}

// repays is after how long an exchange is paid for by what costs r times less. An
// exchange costs as much as both sets of instances for as long as it takes, which is
// (r + 1) times the new set's; each second saves (r − 1) times that. What costs half,
// r = 2, has to do so for three times as long as an exchange and the one back take, a
// minute; r = 1.5 for five times as long.
func repays(r float64) time.Duration {
	return time.Duration(float64(exchange) * (1 + 2/(max(r, loyal)-1)))
}

// bears reports whether a plan's config, with a timeout that may be another, meets the
// objective at the highest load of late, too: else all instances would be exchanged again
// as soon as that comes back.
func (x *Search) bears(plan otp.Plan) bool {
	if x.peak.Rate <= x.objective.Rate*retune {
		return true
	}
	o := x.objective
	o.Rate, o.Arrivals = x.peak.Rate, x.peak.Arrivals
	return otp.Bears(o, x.shares, plan.Best)
}
