package rollout

import "math"

// Interval returns a confidence sequence of a rate, of which k of n trials so far were hits: the probability that the
// rate is ever outside the interval, at any n, is at most alpha.
//
// It is Robbins' method of mixtures for a Bernoulli rate with a Beta(1/2, 1/2) mixture. For the true rate p, the
// mixture's likelihood over that of p,
//
//	M(n) = B(k + 1/2, n − k + 1/2) / (B(1/2, 1/2) · p^k · (1−p)^(n−k)),
//
// is a martingale that begins at 1, so by Ville's inequality it ever reaches 1/alpha with a probability of at most
// alpha. The interval has the rates at which it has not. See Howard, Ramdas, McAuliffe and Sekhon, "Time-uniform,
// nonparametric, nonasymptotic confidence sequences" (2021), on conjugate mixtures, and Johari, Pekelis and Walsh, "Always
// valid inference" (2015), on what they are for.
func Interval(k, n uint64, alpha float64) (low, high float64) {
	if n == 0 {
		return 0, 1
	}
	inside := sequence(k, n, alpha)
	mean := float64(k) / float64(n)
	return bisect(inside, mean, 0), bisect(inside, mean, 1)
}

// sequence returns a function that reports whether a rate is inside [Interval], which has no gap. n is not 0.
func sequence(k, n uint64, alpha float64) func(rate float64) bool {
	hits, others := float64(k), float64(n-k)
	least := logBeta(hits+0.5, others+0.5) - logBeta(0.5, 0.5) + math.Log(alpha)
	return func(p float64) bool {
		return least < times(hits, math.Log(p))+times(others, math.Log1p(-p))
	}
}

// times returns a·b, 0 if a is 0, also for an infinite b.
func times(a, b float64) float64 {
	if a == 0 {
		return 0
	}
	return a * b
}

// bisect returns where inside ends on the way from a point inside to an end, which it returns if it is inside.
func bisect(inside func(float64) bool, from, end float64) float64 {
	if inside(end) {
		return end
	}
	for range 50 { // Halves the error below the precision of what is compared.
		middle := (from + end) / 2
		if inside(middle) {
			from = middle
		} else {
			end = middle
		}
	}
	return end
}

// logBeta is the logarithm of the beta function.
func logBeta(a, b float64) float64 {
	x, _ := math.Lgamma(a)
	y, _ := math.Lgamma(b)
	z, _ := math.Lgamma(a + b)
	return x + y - z
}

// worse reports whether the rate of k of n is certainly above that of the present revision.
func worse(k, n, presentK, presentN uint64, alpha float64) bool {
	if k == 0 || presentN == 0 {
		return false
	}
	mean, present, inside := float64(k)/float64(n), float64(presentK)/float64(presentN), sequence(k, n, alpha)
	if mean <= present || inside(present) { // Cheaper, and nearly always so.
		return false
	}
	_, high := Interval(presentK, presentN, alpha)
	return mean > high && !inside(high)
}

// noWorse reports whether the rate of k of n is certainly above that of the present revision by less than a margin.
func noWorse(k, n, presentK, presentN uint64, margin, alpha float64) bool {
	if n == 0 || presentN == 0 {
		return false
	}
	mean, present, inside := float64(k)/float64(n), float64(presentK)/float64(presentN), sequence(k, n, alpha)
	if mean >= present+margin || present+margin < 1 && inside(present+margin) {
		return false
	}
	low, _ := Interval(presentK, presentN, alpha)
	return mean < low+margin && (low+margin >= 1 || !inside(low+margin))
}
