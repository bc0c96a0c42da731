package delay

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Sized is an EMG whose parameters grow with the size of what is transferred, in units of
// the [Transfer].
type Sized struct {
	K            float64 `json:"k"`
	KPerUnit     float64 `json:"k_per_unit"`
	Loc          float64 `json:"loc_ms"`
	LocPerUnit   float64 `json:"loc_ms_per_unit"`
	Scale        float64 `json:"scale_ms"`
	ScalePerUnit float64 `json:"scale_ms_per_unit"`
}

// at returns the distribution for a number of units. No parameter is below 0.
func (d *Sized) at(units float64) EMG {
	return EMG{
		max(0, d.K+d.KPerUnit*units),
		max(0, d.Loc+d.LocPerUnit*units),
		max(0, d.Scale+d.ScalePerUnit*units),
	}
}

// Transfer says how long bytes take from the master to a worker and back.
type Transfer struct {
	// UnitBytes is the size of a unit: 4 for an element of float32, 4096 for 1024 elements.
	UnitBytes float64 `json:"unit_bytes"`
	// Send is the delay of a call that carries its units there and nothing back, Return
	// that of a call that carries them back. A round trip is send + return - send(0), as
	// either contains an empty call.
	Send   Sized `json:"send"`
	Return Sized `json:"return"`
	// Independent says how they add up. If true, send, return and send(0) are three
	// independent draws, as in the release of Gillis, and the noise of an empty call counts
	// three times. If false, their parameters are added, so that a round trip is an EMG.
	Independent bool `json:"independent"`
}

// RoundTrip is the distribution of a round trip: a normal variable, and exponential ones
// that are added or, with a negative mean, subtracted.
type RoundTrip struct {
	loc, scale float64
	exps       []float64
}

// RoundTrip returns the delay of a call that carries in bytes there and out bytes back.
func (t *Transfer) RoundTrip(in, out int64) RoundTrip {
	send, back, empty := t.Send.at(float64(in)/t.UnitBytes), t.Return.at(float64(out)/t.UnitBytes), t.Send.at(0)
	loc := send.Loc + back.Loc - empty.Loc
	if !t.Independent {
		scale := max(0, send.Scale+back.Scale-empty.Scale)
		return newRoundTrip(loc, scale, scale*max(0, send.K+back.K-empty.K))
	}
	square := send.Scale*send.Scale + back.Scale*back.Scale + empty.Scale*empty.Scale
	return newRoundTrip(loc, math.Sqrt(square), send.K*send.Scale, back.K*back.Scale, -empty.K*empty.Scale)
}

// newRoundTrip keeps the means of its exponentials apart, as the sum in CDF divides by
// their differences. It moves them by at most 1e-5 of their size and keeps their sum.
func newRoundTrip(loc, scale float64, exps ...float64) RoundTrip {
	exps = slices.DeleteFunc(exps, func(theta float64) bool { return theta == 0 })
	if len(exps) > 1 && math.Abs(exps[0]-exps[1]) < 1e-5*math.Abs(exps[0]) {
		mid := (exps[0] + exps[1]) / 2
		exps[0], exps[1] = mid*(1+1e-5), mid*(1-1e-5)
	}
	return RoundTrip{loc, scale, exps}
}

// Moments returns mean, variance and tail.
func (r RoundTrip) Moments() Moments {
	mean, second, third := r.loc, r.scale*r.scale, 0.0
	for _, theta := range r.exps {
		mean += theta
		second += theta * theta
		third += 2 * theta * theta * theta
	}
	return newMoments(mean, second, third)
}

// CDF returns the probability of a round trip of at most x ms. The characteristic function
// of the exponentials is a product; its partial fractions make the sum a weighted sum of
// EMGs.
func (r RoundTrip) CDF(x float64) float64 {
	x -= r.loc
	if len(r.exps) == 0 {
		return emgCDF(x, r.scale, 0)
	}
	p := 0.0
	for i, theta := range r.exps {
		weight := 1.0
		for j, other := range r.exps {
			if j != i {
				weight *= theta / (theta - other)
			}
		}
		if theta > 0 {
			p += weight * emgCDF(x, r.scale, theta)
		} else {
			p += weight * (1 - emgCDF(-x, r.scale, -theta))
		}
	}
	return min(1, max(0, p))
}

// Sample is a measured delay.
type Sample struct {
	// Bytes is the size that was transferred, Ms the time of the call.
	Bytes int64
	Ms    float64
}

// Fit returns the delay whose parameters are linear in the size: it fits an EMG to the
// samples of each size, and a line through each parameter, by least squares weighted with
// the number of samples. Sizes with fewer than 20 samples do not count. It fails if no size
// has that many, or if a sample is not a finite number.
//
// Where a delay is nearly exponential, its K is large and its scale small, and two lines
// through these have nothing to do with their product. Then one K holds for all sizes.
func Fit(samples []Sample, unitBytes float64) (Sized, error) {
	sorted := slices.Clone(samples)
	slices.SortStableFunc(sorted, func(a, b Sample) int { return cmp.Compare(a.Bytes, b.Bytes) })
	var units, weights []float64
	var fitted []EMG
	for len(sorted) > 0 {
		size := sorted[0].Bytes
		var ms []float64
		for len(sorted) > 0 && sorted[0].Bytes == size {
			ms, sorted = append(ms, sorted[0].Ms), sorted[1:]
		}
		if len(ms) < minSamples {
			continue
		}
		e, err := FitEMG(ms)
		if err != nil {
			return Sized{}, fmt.Errorf("size %d: %w", size, err)
		}
		units, weights = append(units, float64(size)/unitBytes), append(weights, float64(len(ms)))
		fitted = append(fitted, e)
	}
	if len(units) == 0 {
		return Sized{}, errors.New("fit of a delay: no size has 20 samples: measure more of each")
	}
	evenK(fitted, weights)
	var d Sized
	var k, loc, scale []float64
	for _, e := range fitted {
		k, loc, scale = append(k, e.K), append(loc, e.Loc), append(scale, e.Scale)
	}
	d.K, d.KPerUnit = line(units, k, weights)
	d.Loc, d.LocPerUnit = line(units, loc, weights)
	d.Scale, d.ScalePerUnit = line(units, scale, weights)
	// A line through few sizes may begin below 0, which no delay does.
	d.K, d.Loc, d.Scale = max(0, d.K), max(0, d.Loc), max(0, d.Scale)
	return d, nil
}

// largestK is the K above which a delay counts as nearly exponential.
const largestK = 10

// evenK gives all EMGs the same K if one of them is nearly exponential: the median, at most
// largestK. They keep their means and variances. A size whose delays vary much then counts
// less, by the variance.
func evenK(fitted []EMG, weights []float64) {
	if !slices.ContainsFunc(fitted, func(e EMG) bool { return e.K > largestK }) {
		return
	}
	var all []float64
	for _, e := range fitted {
		all = append(all, e.K)
	}
	slices.Sort(all)
	k := min(all[len(all)/2], largestK)
	for i, e := range fitted {
		m := e.Moments()
		scale := math.Sqrt(m.Variance / (1 + k*k))
		fitted[i] = EMG{K: k, Loc: max(0, m.Mean-k*scale), Scale: scale}
		weights[i] /= m.Variance + 1e-9
	}
}

// line returns the line y = base + slope·x of the least weighted squares.
func line(x, y, weights []float64) (base, slope float64) {
	var n, meanX, meanY, xx, xy float64
	for i, w := range weights {
		n += w
		meanX += w * x[i]
		meanY += w * y[i]
	}
	meanX /= n
	meanY /= n
	for i, w := range weights {
		xx += w * (x[i] - meanX) * (x[i] - meanX)
		xy += w * (x[i] - meanX) * (y[i] - meanY)
	}
	if xx > 0 {
		slope = xy / xx
	}
	return meanY - slope*meanX, slope
}
