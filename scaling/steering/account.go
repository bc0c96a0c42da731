package steering

import (
	"math"
	"time"
)

const (
	// thrift is the factor of a level below 1 at a fall.
	thrift = 0.88
	// saving is the time for which requests miss nothing before a level falls below 1.
	saving = time.Minute
	// applying is how long a plan may take to release what a lower level frees.
	applying = 75 * time.Second
	// wide is how far the planned capacity may be above the level before a lower level frees nothing.
	wide = 2.2
	// least is the fewest missed requests that an account holds.
	least = 4
	// repaying is the time between two increases that pay a debt.
	repaying = 5 * time.Second
)

// account counts the requests that the percentile allows to miss the objective, less those that missed it.
// Its rule is that of adaptive conformal inference (Gibbs, Candès 2021): a level falls while there is credit,
// and rises while there is a debt, so in the long run as many requests miss as may, whatever causes it. Credit
// is bounded, because a function may not miss its objective today for having kept it last week.
type account struct {
	// credit is in requests. rate is the smoothed rate in requests/s.
	credit, rate float64
	last         mark
	known        bool
	// changed is when the level last changed, paid when it last rose for a debt. pending: the plan has not
	// applied a fall yet.
	changed, paid time.Time
	pending       bool
	capacity      int
	// low is the highest level that was too low lately, and until when it is not tried again, for hold.
	low   float64
	until time.Time
	hold  time.Duration
	// all and missed are the requests since an increase that pays a debt. before is the level before that
	// increase, 0 for none, and share the part that had missed before it. idle is until when no other one comes.
	all, missed   float64
	before, share float64
	idle          time.Time
}

// tooLow notes that a level was too low.
func (a *account) tooLow(now time.Time, level float64) {
	if a.hold = max(shortHold, min(longest, 2*a.hold)); now.Sub(a.until) > longest {
		a.hold = shortHold
	}
	a.low, a.until = level, now.Add(a.hold)
}

// shortHold is the first time for which a level that was too low is not tried again.
const shortHold = 2 * time.Minute

// smoothing is the time over which the rate is smoothed.
const smoothing = 20 * time.Second

// count books the requests since the last look.
func (a *account) count(now time.Time, s Seen) {
	here := mark{now, s.InTime, s.Late, s.Refused, s.Slow}
	if !a.known {
		a.last, a.known, a.changed, a.paid = here, true, now, now
		return
	}
	passed := now.Sub(a.last.at)
	bad := float64(s.Late + s.Refused - a.last.late - a.last.refused - s.Slow + a.last.slow)
	n := bad + float64(s.InTime-a.last.inTime)
	a.last = here
	a.all, a.missed = a.all+n, a.missed+bad
	if passed > 0 {
		a.rate += (n/passed.Seconds() - a.rate) * (1 - math.Exp(-passed.Seconds()/smoothing.Seconds()))
	}
	may := 1 - s.Percentile/100
	limit := a.limit(s.Percentile)
	a.credit = max(-limit, min(limit, a.credit+may*n-bad))
}

// limit is the most credit: what may miss within the time of saving.
func (a *account) limit(percentile float64) float64 {
	return max(least, (1-percentile/100)*a.rate*saving.Seconds())
}

// next returns the level that follows from the account.
func (a *account) next(now time.Time, s Seen, level float64) float64 {
	switch {
	case a.pending && s.Capacity != a.capacity:
		a.pending = false
		a.credit = min(a.credit, a.limit(s.Percentile)/2) // What came before says nothing about fewer instances.
	case a.pending && now.Sub(a.changed) >= applying:
		a.pending = false
	}
	planned := s.Planned
	switch {
	case a.credit < 0 && level < 1 && !s.Changing && now.Sub(a.paid) >= repaying:
		a.paid, a.changed, a.pending = now, now, false
		a.tooLow(now, level)
		return min(1, level/thrift)
	case level*thrift <= a.low*1.01 && now.Before(a.until):
	case a.credit >= a.limit(s.Percentile) && !a.pending && level > Lowest && planned < wide*level && !s.Changing:
		a.changed, a.pending, a.capacity = now, true, s.Capacity
		a.credit /= 2 // What is spent must be earned again, by requests.
		return max(Lowest, level*thrift)
	}
	return level
}

const (
	// owing bounds a level that a debt alone raises.
	owing = 2.0
	// better is the part of the misses that an increase for a debt must leave at most, to have helped.
	better = 0.8
)

// owes raises a level of 1 or above if in the last minutes more requests have missed the objective than may, although
// never many at a time. It undoes increases that did not help. It reports whether the level has changed.
func (l *Loop) owes(now time.Time, s Seen) bool {
	a := &l.account
	waits := s.Changing || s.Full || now.Sub(a.paid) < saving/2 || now.Sub(l.ordered) < saving/2
	if l.Level() < 1 || a.credit > -a.limit(s.Percentile)/2 || waits || l.helpless(now) {
		return false
	}
	share := a.missed / max(1, a.all)
	helped := a.before == 0 || share < better*a.share
	level := l.Level()
	switch {
	case !helped:
		l.level, a.before, a.idle = min(level, a.before), 0, now.Add(longest)
	case level < owing:
		l.level, a.before, a.share = min(owing, level/thrift), level, share
		l.calm, l.hold = now, min(longest, max(2*l.hold, 2*saving))
	default:
		return false
	}
	a.paid, a.all, a.missed = now, 0, 0
	return true
}

// helpless reports whether increases did not help lately. A debt is then no reason to keep a level.
func (l *Loop) helpless(now time.Time) bool {
	return now.Before(l.account.idle) || !l.futile.IsZero() && now.Sub(l.futile) < max(l.rest, longest)
}
