// Package replica decides how many replicas an ordinary function has: one without an objective,
// which runs any program and does not batch. [Scaler] takes the load and the time and returns a
// number. It is pure, and starts and stops nothing. Begin with [Scaler.Next].
package replica

import (
	"math"
	"time"
)

// Type is the measure of load by which a function scales.
type Type int

// The types.
const (
	// ByRate counts requests per second.
	ByRate Type = iota
	// ByCapacity counts requests in flight, waiting ones included.
	ByCapacity
)

// Settings are the scaling settings of an ordinary function.
type Settings struct {
	// Min and Max bound the number of replicas; a Max of 0 means no bound. If they are
	// equal, load changes nothing.
	Min, Max int
	Type     Type
	// Target is the load of one replica: requests/s, or requests in flight. 0 switches
	// scaling by load off.
	Target float64
	// Zero: after ZeroAfter without a request there is no replica. A Min of 0 means the
	// same.
	Zero      bool
	ZeroAfter time.Duration
}

// Load is the load of a function.
type Load struct {
	// Arrivals counts all requests since the beginning.
	Arrivals uint64
	// InFlight counts the requests on replicas, and Waiting those that have none yet.
	InFlight, Waiting int
}

const (
	// loadWindow is the time over which load is averaged, as in the alert of OpenFaaS' own
	// autoscaler. settleWindow is how long a lower load must last before replicas stop.
	// After the last request, surplus replicas thus stay for the sum of both, 40 s.
	loadWindow   = 10 * time.Second
	settleWindow = 30 * time.Second
	// loadGrain and peakGrain are the steps in which the windows move.
	loadGrain = 250 * time.Millisecond
	peakGrain = time.Second
)

// Scaler decides how many replicas one ordinary function has.
//
// Requests come at random, so after a count of N in one window, about N ± √N come in the next.
// The number rises at once, but only to what N − √N needs. It falls only to what N + 2√N
// needs, where N is the highest count of the last settleWindow. For example, with a target of
// 5/s a replica takes 50 requests in the window of 10 s:
//
//	 4.0/s: N = 40    up to ⌈33.7/50⌉ = 1     down to ⌈52.6/50⌉ = 2
//	 5.5/s: N = 55    up to ⌈47.6/50⌉ = 1     down to ⌈69.8/50⌉ = 2
//	10.0/s: N = 100   up to ⌈90.0/50⌉ = 2     down to ⌈120.0/50⌉ = 3
//	 100/s: N = 1000  up to ⌈968.4/50⌉ = 20   down to ⌈1063.2/50⌉ = 22
//
// So at a steady 4/s one replica stays one and two stay two; at 3.5/s
// (35 + 11.8 = 46.8) two become one. Two clients that send 5/s each get a
// second replica after 5.8 s, when 58 requests have come (58 − 7.6 > 50).
//
// By capacity, N is the mean number of requests in flight, with N − 5 % and N + 10 % instead of
// the roots: one window has many samples of it.
type Scaler struct {
	settings Settings
	wanted   int
	// floor is the number that the scale route set, until load moves the number.
	floor int
	// arrivals is the counter at the last look. seen is the time of the last look, and active
	// that of the last one at which the function had a request, both on clock.
	arrivals     uint64
	clock        clock
	seen, active time.Duration
	load         slidingMean
	peak         slidingMax
}

// clock turns times into the time since the first of them. It stands still while the machine's
// clock is set back: the windows would otherwise forget nothing until the clock is where it was.
type clock struct {
	last   time.Time
	passed time.Duration
}

func (c *clock) read(now time.Time) time.Duration {
	if !c.last.IsZero() {
		c.passed += max(0, now.Sub(c.last))
	}
	c.last = now
	return c.passed
}

// New returns a Scaler that begins with n replicas, limited to the bounds. 0 lasts until a
// request comes.
func New(now time.Time, s Settings, n int) *Scaler {
	r := &Scaler{settings: s}
	r.Set(now, n, Load{})
	return r
}

// Wanted is the number of replicas that the function should have.
func (r *Scaler) Wanted() int { return r.wanted }

// least is the least number other than 0.
func (r *Scaler) least() int { return max(1, r.settings.Min) }

// bound limits a number other than 0 to the bounds.
func (r *Scaler) bound(n int) int {
	if r.settings.Max > 0 {
		n = min(n, r.settings.Max)
	}
	return max(n, r.least())
}

// Set sets the number for the scale route: n replicas now, and no fewer until load moves the
// number. It forgets earlier load. 0 lasts until the next request.
func (r *Scaler) Set(now time.Time, n int, load Load) {
	r.load, r.peak = slidingMean{}, slidingMax{}
	at := r.clock.read(now)
	r.arrivals, r.seen, r.active = load.Arrivals, at, at
	if n <= 0 {
		r.wanted, r.floor = 0, 0
		return
	}
	r.wanted = r.bound(n)
	r.floor = r.wanted
}

// Resume begins with n replicas that already run. The number does not fall before the load has
// been observed for settleWindow.
func (r *Scaler) Resume(now time.Time, n int) {
	if at := r.clock.read(now); n > r.wanted {
		r.wanted, r.seen, r.active = r.bound(n), at, at
		r.load, r.peak = slidingMean{}, slidingMax{}
	}
}

// Configure changes the settings; the number moves only if it is out of bounds.
func (r *Scaler) Configure(s Settings) {
	r.settings = s
	if r.wanted > 0 {
		r.wanted = r.bound(r.wanted)
		r.floor = min(r.floor, r.wanted)
	}
}

// Next returns the number of replicas that the function should have at now.
func (r *Scaler) Next(now time.Time, load Load) int {
	at := r.clock.read(now)
	came := load.Arrivals != r.arrivals
	if came || load.InFlight > 0 || load.Waiting > 0 {
		r.active = at
	}
	mean, spread := r.measure(at, load)
	switch {
	case r.wanted == 0:
		if came || load.Waiting > 0 {
			r.wanted = r.least()
		}
	case r.idle(at):
		r.wanted, r.floor = 0, 0
	case r.settings.Target > 0:
		r.follow(at, mean, spread)
	}
	return r.wanted
}

// idle reports whether the function scales to zero and has had no request for ZeroAfter.
func (r *Scaler) idle(at time.Duration) bool {
	zero := r.settings.Zero || r.settings.Min <= 0
	return zero && at-r.active >= r.settings.ZeroAfter
}

// follow moves the number with the load.
func (r *Scaler) follow(at time.Duration, mean, spread float64) {
	need := func(load float64) int {
		return r.bound(int(math.Ceil(min(load/r.settings.Target, math.MaxInt32))))
	}
	peak, settled := r.peak.observe(at, mean+2*spread)
	if up := need(mean - spread); up > r.wanted {
		r.wanted, r.floor = up, 0
	} else if down := max(need(peak), r.floor); settled && down < r.wanted {
		r.wanted = down
	}
}

// measure updates the window with the load. It returns the window's mean and its standard
// error.
func (r *Scaler) measure(at time.Duration, load Load) (mean, spread float64) {
	var amount float64
	if r.settings.Type == ByCapacity {
		// The number in flight counts for the time since the last look.
		passed := min(at-r.seen, loadWindow)
		amount = float64(load.InFlight+load.Waiting) * passed.Seconds()
	} else if load.Arrivals > r.arrivals {
		amount = float64(load.Arrivals - r.arrivals)
	}
	r.arrivals, r.seen = load.Arrivals, at
	n := r.load.add(at, amount)
	mean = n / loadWindow.Seconds()
	if r.settings.Type == ByCapacity {
		return mean, mean / 20
	}
	return mean, min(math.Sqrt(n)/loadWindow.Seconds(), mean)
}

// slidingMean sums the amounts of the last loadWindow.
type slidingMean struct{ slots []slot }

// slot has the amount or value of one step of a window.
type slot struct {
	at    int64
	value float64
}

// add adds amount at a time and returns the sum of the window.
func (m *slidingMean) add(now time.Duration, amount float64) float64 {
	at := int64(now / loadGrain)
	for len(m.slots) > 0 && m.slots[0].at <= at-int64(loadWindow/loadGrain) {
		m.slots = m.slots[1:]
	}
	if n := len(m.slots); n > 0 && m.slots[n-1].at == at {
		m.slots[n-1].value += amount
	} else if amount > 0 {
		m.slots = append(m.slots, slot{at, amount})
	}
	// A new sum leaves no rounding error when all slots are gone.
	sum := 0.0
	for _, s := range m.slots {
		sum += s.value
	}
	return sum
}

// slidingMax is the highest value of the last settleWindow.
type slidingMax struct {
	// began is the step of the first value; slots fall in value.
	began int64
	slots []slot
}

// observe adds a value. It returns the highest value of the window, and whether the window has
// been observed for its whole length.
func (m *slidingMax) observe(now time.Duration, value float64) (highest float64, settled bool) {
	at := int64(now / peakGrain)
	if len(m.slots) == 0 {
		m.began = at
	}
	const length = int64(settleWindow / peakGrain)
	for len(m.slots) > 0 && m.slots[0].at <= at-length {
		m.slots = m.slots[1:]
	}
	n := len(m.slots)
	for n > 0 && m.slots[n-1].value <= value {
		n--
	}
	if m.slots = m.slots[:n]; n == 0 || m.slots[n-1].at < at {
		m.slots = append(m.slots, slot{at, value})
	}
	return m.slots[0].value, at-m.began >= length
}
