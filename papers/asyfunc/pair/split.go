package pair

import (
	"math"
	"time"
)

// rates are times of a pair, in seconds.
type rates struct {
	// own is the time of the body's own layers for all rows, body that of a row of Φ on the
	// body, and shadows that on each shadow.
	own, body float64
	shadows   []float64
	// most is the largest job of each shadow in rows.
	most []int
}

// shares are the rows for each shadow so that all end together: with the body's share of Φ, as
// printed (Eq. 6), or pipelined with the body's own layers of a batch as well, because the
// shadows begin the next one meanwhile. They are not whole numbers. A shadow of unknown speed
// counts as fast as the body.
func (r rates) shares(rows int, pipelined bool) []float64 {
	out := make([]float64, len(r.shadows))
	body, own := r.body, r.own
	if body <= 0 {
		body, own = 1, 0
	}
	capped := make([]bool, len(out))
	for range len(out) + 1 {
		left, perTime := float64(rows), 0.0
		for i, s := range r.shadows {
			if capped[i] {
				left -= out[i]
				continue
			}
			if s <= 0 || r.body <= 0 {
				s = body
			}
			perTime += 1 / s
		}
		if perTime == 0 {
			return out
		}
		ends := body * max(0, left)
		if pipelined {
			ends += own
		}
		ends /= 1 + body*perTime
		again := false
		for i, s := range r.shadows {
			if capped[i] {
				continue
			}
			if s <= 0 || r.body <= 0 {
				s = body
			}
			if out[i] = ends / s; ends*perTime > left {
				out[i] *= max(0, left) / (ends * perTime)
			}
			if most := float64(r.most[i]); out[i] > most {
				out[i], capped[i], again = most, true, true
			}
		}
		if !again {
			break
		}
	}
	return out
}

// whole makes whole numbers of shares. What is lost or gained goes into carry, so that batches
// have the shares on average.
func whole(rows int, shares []float64, most []int, carry []float64) []int {
	out := make([]int, len(shares))
	left := rows
	for i, s := range shares {
		exact := s + carry[i]
		n := int(math.Round(exact))
		n = max(0, min(n, left, most[i]))
		out[i], left = n, left-n
		carry[i] = min(0.5, max(-0.5, exact-float64(n)))
	}
	return out
}

// mean is a moving mean, 0 until it knows anything.
type mean float64

// weight is that of the latest value.
const weight = 0.25

func (m *mean) add(took time.Duration, rows int) {
	now := took.Seconds() / float64(max(1, rows))
	if *m == 0 {
		*m = mean(now)
		return
	}
	*m += weight * mean(now-float64(*m))
}

// times are what a pair has measured of itself.
type times struct {
	// own is the time of the body's own layers by rows, phi that of a row of Φ on the body.
	own map[int]*mean
	phi mean
}

// ownFor is the time of the body's own layers with rows, from the nearest batch that ran, 0 if
// none did.
func (t *times) ownFor(rows int) float64 {
	best, distance := 0.0, math.MaxInt
	for n, m := range t.own {
		if d := max(n-rows, rows-n); d < distance {
			best, distance = float64(*m)*float64(rows)/float64(n), d
		}
	}
	return best
}
