package access

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// maxRate is the maximum number of requests in a rate.
	maxRate = 1000000
	// maxCallers is about half the number of callers that a limiter remembers.
	maxCallers = 5000
)

// Rate is how many requests there may be in a time.
type Rate struct {
	Requests int
	Per      time.Duration
}

// String returns the rate as [ParseRate] reads it.
func (r Rate) String() string {
	return fmt.Sprintf("%d/%s", r.Requests, map[time.Duration]string{time.Second: "s", time.Minute: "m", time.Hour: "h"}[r.Per])
}

// RateRule says what [ParseRate] accepts.
var RateRule = fmt.Sprintf("it must be a whole number of requests from 1 to %d, and /s, /m or /h", maxRate)

// ParseRate reads a rate such as "100/s"; false if it is none.
func ParseRate(text string) (Rate, bool) {
	number, unit, _ := strings.Cut(text, "/")
	n, err := strconv.Atoi(number)
	per := map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}[unit]
	if err != nil || n < 1 || n > maxRate || per == 0 || number[0] == '+' {
		return Rate{}, false
	}
	return Rate{n, per}, true
}

// Outcome is what became of a request that was counted against a rate.
type Outcome struct {
	Allowed bool `json:"allowed"`
	// Limit is the number of requests that a caller may send at once after a rest, and Remaining how
	// many are left.
	Limit     int `json:"limit"`
	Remaining int `json:"remaining"`
	// Reset is the time until Remaining is Limit again, Retry the time until the next request is
	// allowed, 0 if it is now.
	Reset time.Duration `json:"reset"`
	Retry time.Duration `json:"retry"`
}

// Limiter counts the requests of each caller against a rate. It is a token bucket: a caller that has
// rested for a while may send the requests of one unit of time at once. It is safe for concurrent use.
type Limiter struct {
	rate Rate

	mu sync.Mutex
	// recent has callers that have sent requests lately, and earlier those of before. When recent is
	// full it becomes earlier, and the callers of earlier are forgotten.
	recent, earlier map[string]*rate.Limiter
}

// NewLimiter returns a limiter of a rate.
func NewLimiter(r Rate) *Limiter { return &Limiter{rate: r, recent: map[string]*rate.Limiter{}} }

// Rate returns the limiter's rate.
func (l *Limiter) Rate() Rate { return l.rate }

// Take counts a request of a caller.
func (l *Limiter) Take(caller string, now time.Time) Outcome {
	l.mu.Lock()
	defer l.mu.Unlock()
	bucket := l.bucket(caller)
	o := Outcome{Allowed: bucket.AllowN(now, 1), Limit: l.rate.Requests}
	tokens := bucket.TokensAt(now)
	o.Remaining = max(0, int(tokens))
	o.Reset = l.timeFor(float64(l.rate.Requests) - tokens)
	if !o.Allowed {
		o.Retry = max(l.timeFor(1-tokens), time.Millisecond)
	}
	return o
}

// timeFor returns the time in which this many requests become allowed.
func (l *Limiter) timeFor(requests float64) time.Duration {
	return time.Duration(math.Ceil(max(0, requests) * float64(l.rate.Per) / float64(l.rate.Requests)))
}

// bucket returns a caller's bucket. The lock is held.
func (l *Limiter) bucket(caller string) *rate.Limiter {
	if b, ok := l.recent[caller]; ok {
		return b
	}
	b, ok := l.earlier[caller]
	if !ok {
		b = rate.NewLimiter(rate.Limit(float64(l.rate.Requests)/l.rate.Per.Seconds()), l.rate.Requests)
	}
	if len(l.recent) >= maxCallers {
		l.earlier, l.recent = l.recent, map[string]*rate.Limiter{}
	}
	l.recent[caller] = b
	return b
}
