package arrival

import "math"

// search looks for the parts whose composition has the autocorrelations of a trace.
type search struct {
	lags     []int
	wanted   []float64 // SCV·ρ at the lags
	logR2    float64
	parts    int
	maxGamma float64
	// chance is the sum of squares if each lag is off by two standard errors of
	// independent gaps.
	chance float64
}

// newSearch takes lags in steps of a quarter, up to a tenth of the gaps. The trace
// has too few pairs at longer lags.
func newSearch(gaps []float64, m Moments, parts int) search {
	s := search{logR2: math.Log((1 + m.SCV) / 2), parts: parts, maxGamma: 1 - 1/float64(len(gaps))}
	for lag := 1; lag <= max(1, min(len(gaps)/10, 1000)); lag = max(lag+1, lag*5/4) {
		s.lags = append(s.lags, lag)
		s.wanted = append(s.wanted, covariance(gaps, m.Mean, lag)/(m.Mean*m.Mean))
		s.chance += 4 * m.SCV * m.SCV / float64(len(gaps))
	}
	return s
}

// covariance is the covariance of gaps lag apart.
func covariance(gaps []float64, mean float64, lag int) float64 {
	sum := 0.0
	for i := range len(gaps) - lag {
		sum += (gaps[i] - mean) * (gaps[i+lag] - mean)
	}
	return sum / float64(len(gaps)-lag)
}

// squaredError is the sum of the squares by which parts miss the autocorrelations.
func (s search) squaredError(parts []part) float64 {
	sum := 0.0
	for i, lag := range s.lags {
		product := 1.0
		for _, p := range parts {
			product *= 1 + math.Expm1(s.logR2*p.share)*math.Pow(p.gamma, float64(lag))
		}
		d := product - 1 - s.wanted[i]
		sum += d * d
	}
	return sum
}

// suffices reports whether a process of order 2 fits well enough: its sum of squares
// is at most twice that of parts, or no more than chance. The more the counts of
// gaps vary, the less the gaps say, so chance grows with the dispersion.
func (s search) suffices(two MAP, parts []part) bool {
	sum, scv := 0.0, two.SCV()
	for i, lag := range s.lags {
		d := scv*two.Autocorrelation(lag) - s.wanted[i]
		sum += d * d
	}
	return sum <= max(s.chance*max(1, two.Dispersion()/scv), 2*s.squaredError(parts))
}

// best searches for the parts with the least squared error. It starts from equal
// shares and phases of 2, 20, 200… gaps. It then changes one parameter after the
// other, in steps that get smaller: γ in steps of log(1 − γ), shares in moves from
// one part to the next.
func (s search) best() []part {
	parts := make([]part, s.parts)
	for i := range parts {
		parts[i] = part{gamma: min(s.maxGamma, 1-0.5*math.Pow(0.1, float64(i))), share: 1 / float64(s.parts)}
	}
	least := s.squaredError(parts)
	try := func(change func([]part)) bool {
		next := append([]part(nil), parts...)
		change(next)
		found := s.squaredError(next)
		if found >= least {
			return false
		}
		parts, least = next, found
		return true
	}
	for round, step := 0, 0.5; step > 1e-3 && round < rounds; round++ {
		moved := false
		for i := range parts {
			for _, sign := range []float64{step, -step} {
				moved = try(func(p []part) { p[i].gamma = s.decay(p[i].gamma, sign) }) || moved
				moved = try(func(p []part) { move(p, i, sign) }) || moved
			}
		}
		if !moved {
			step /= 2
		}
	}
	return parts
}

// rounds is the maximum number of times that best goes through all parameters.
const rounds = 300

// decay multiplies 1 − γ by 10^by, within 0 ≤ γ ≤ maxGamma.
func (s search) decay(gamma, by float64) float64 {
	return min(s.maxGamma, max(0, 1-(1-gamma)*math.Pow(10, by)))
}

// move moves a share of by from the part after i to part i.
func move(p []part, i int, by float64) {
	j := (i + 1) % len(p)
	by = min(by, p[j].share)
	by = max(by, -p[i].share)
	p[i].share += by
	p[j].share -= by
}
