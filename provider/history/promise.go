package history

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Promise counts how well an objective is kept, from when it was stated. Its zero value has seen nothing. It is not
// safe for concurrent use.
type Promise struct {
	// since is the second from which it counts, 0 for never, and last the latest reading of the counters.
	since int64
	last  Counts
	// began is the second in which the present block began, all and missed are its requests.
	began       int64
	all, missed float64
	// requests and misses are the sums of the blocks that have ended; the others are sums of products of a
	// block's requests and misses.
	requests, misses                float64
	allByAll, allByMiss, missByMiss float64
}

// block is how many seconds make a block. Misses come together, when a machine is busy or instances start. So the
// blocks, not the requests, tell how sure a share is.
const block = 10

// Restart counts from a second on; counts is the reading then.
func (p *Promise) Restart(at int64, counts Counts) { *p = Promise{since: at, began: at, last: counts} }

// Add adds the reading of a second.
func (p *Promise) Add(at int64, counts Counts) {
	if p.since == 0 {
		p.Restart(at, counts)
		return
	}
	now := counts.since(p.last)
	p.last = p.last.latest(counts)
	p.all += float64(now.Answered())
	p.missed += float64(now.Answered() - now.InTime)
	if at-p.began >= block {
		p.end(at)
	}
}

// end ends a block.
func (p *Promise) end(at int64) {
	p.requests, p.misses = p.requests+p.all, p.misses+p.missed
	p.allByAll += p.all * p.all
	p.allByMiss += p.all * p.missed
	p.missByMiss += p.missed * p.missed
	p.began, p.all, p.missed = at, 0, 0
}

// Kept is how well an objective was kept.
type Kept struct {
	// Since is a time in seconds since 1970, Requests the number of requests with an answer since then.
	Since    int64
	Requests uint64
	// Percent is the part of them that was answered in time. From and To bound the part that is to be expected in
	// the long run while nothing changes, with a confidence of 95 %.
	Percent, From, To float64
}

// confident is the quantile of the normal distribution for a confidence of 95 % on two sides.
const confident = 1.96

// Kept returns how well the objective was kept. It returns false without requests.
//
// The bounds are Wilson's (1927) for as many independent requests as vary as much as the blocks do. With a share p of
// N requests that miss, and n requests and m misses in a block, that is N·p·(1 − p) / Σ(m − p·n)² times N, at most N.
func (p *Promise) Kept() (k Kept, ok bool) {
	whole := *p
	whole.end(0)
	n, misses := whole.requests, whole.misses
	if n == 0 {
		return k, false
	}
	miss := misses / n
	spread := whole.missByMiss - 2*miss*whole.allByMiss + miss*miss*whole.allByAll
	independent := n
	if even := n * miss * (1 - miss); spread > even && even > 0 {
		independent = n * even / spread
	}
	low, high := wilson(miss, max(1, independent))
	return Kept{p.since, uint64(n), 100 * (1 - miss), 100 * (1 - high), 100 * (1 - low)}, true
}

// wilson returns the bounds of a share that was seen in n independent trials.
func wilson(share, n float64) (low, high float64) {
	const z2 = confident * confident
	middle := (share + z2/(2*n)) / (1 + z2/n)
	half := confident / (1 + z2/n) * math.Sqrt(share*(1-share)/n+z2/(4*n*n))
	return max(0, middle-half), min(1, middle+half)
}

// Sentence says what was promised and what was kept of it.
func (k Kept) Sentence(percentile float64, objective time.Duration) string {
	since := time.Unix(k.Since, 0).UTC().Format("2006-01-02 15:04:05 MST")
	return fmt.Sprintf("promised %g %% within %v; kept %s %% of %s since %s; 95 %% confident of %s–%s %%",
		percentile, objective, share(k.Percent), grouped(k.Requests), since, share(k.From), share(k.To))
}

// share is a part in % with one digit more than is common for it: 97.3, 99.52, 99.987. It is rounded down, so that 100
// means all.
func share(percent float64) string {
	digits := 1.0
	for percent > 100-math.Pow(10, 1-digits) && digits < 3 {
		digits++
	}
	scale := math.Pow(10, digits)
	return fmt.Sprintf("%g", math.Floor(percent*scale+1e-9)/scale)
}

// grouped is a number with commas between its thousands.
func grouped(n uint64) string {
	text := fmt.Sprint(n)
	var parts []string
	for len(text) > 3 {
		parts = append([]string{text[len(text)-3:]}, parts...)
		text = text[:len(text)-3]
	}
	return strings.Join(append([]string{text}, parts...), ",")
}
