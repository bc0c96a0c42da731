package scaling

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// metered feeds a meter for a time with a look every 100 ms, and calls see with each
// estimate.
func metered(m *Meter, r *rand.Rand, from time.Duration, d time.Duration, rate float64, total *uint64, see func(at time.Duration, rate float64)) {
	const look = 100 * time.Millisecond
	for at := from + look; at <= from+d; at += look {
		if r == nil {
			*total += uint64(rate*at.Seconds()) - uint64(rate*(at-look).Seconds())
		} else {
			for wait := r.ExpFloat64() / rate; wait < look.Seconds(); wait += r.ExpFloat64() / rate {
				*total++
			}
		}
		see(at, m.Read(epoch.Add(at), *total))
	}
}

// The meter sees a jump within a moment, and its end a little later.
func TestMeterFollowsJumps(t *testing.T) {
	var m Meter
	var total uint64
	m.Read(epoch, 0)
	metered(&m, nil, 0, time.Minute, 1000, &total, func(at time.Duration, rate float64) {
		if at >= 300*ms && rate < 950 || rate > 1050 {
			t.Errorf("%v after a jump from 0 to 1000/s: %v", at, rate)
		}
	})
	metered(&m, nil, time.Minute, time.Minute, 100, &total, func(at time.Duration, rate float64) {
		if at > time.Minute+4*time.Second && rate > 130 || at > 100*time.Second && math.Abs(rate-100) > 1 {
			t.Errorf("%v: %v, although 100/s come for a while", at, rate)
		}
	})
}

// Requests that come all at once are no rate.
func TestMeterBearsClumps(t *testing.T) {
	var m Meter
	m.Read(epoch, 0)
	for at := 10 * ms; at < 2*time.Second; at += 10 * ms {
		total := uint64(0)
		if at >= 500*ms {
			total = 500
		}
		if rate := m.Read(epoch.Add(at), total); rate > 520 {
			t.Errorf("%v: 500 requests at once are taken for %v/s", at, rate)
		}
	}
}

// Requests at random with a steady rate look steady: the highest estimate of a minute,
// for which instances are kept, is hardly above the rate.
func TestMeterIsSteady(t *testing.T) {
	for _, rate := range []float64{5, 30, 200, 2000} {
		r := rand.New(rand.NewPCG(1, uint64(rate)))
		var m Meter
		var total uint64
		m.Read(epoch, 0)
		metered(&m, r, 0, time.Minute, rate, &total, func(time.Duration, float64) {})
		highest, sum, n, minutes := 0.0, 0.0, 0.0, 0.0
		metered(&m, r, time.Minute, 40*time.Minute, rate, &total, func(at time.Duration, got float64) {
			if highest = max(highest, got); at%time.Minute == 0 {
				minutes += highest
				highest = 0
			}
			sum, n = sum+got, n+1
		})
		mean, peak := sum/n, minutes/40
		if math.Abs(mean-rate) > 0.03*rate+0.1 {
			t.Errorf("%v/s: the mean of the estimates is %v", rate, mean)
		}
		if most := rate + 2.5*math.Sqrt(rate/4); peak > most {
			t.Errorf("%v/s: a minute's highest estimate is %v on average, more than %v", rate, peak, most)
		}
		t.Logf("%v/s: mean %.4g, minutes' peak %.4g", rate, mean, peak)
	}
}
