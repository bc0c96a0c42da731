package capacity

import (
	"math"
	"testing"
	"time"
)

// Of equal instances, as many are enough as Crew says.
func TestUnluckyAgreesWithCrew(t *testing.T) {
	const exec = 100 * time.Millisecond
	for _, batch := range []float64{1, 4} {
		for _, load := range []float64{0.02, 0.3, 1, 3, 10, 40, 100} {
			for _, patience := range []float64{0.1, 0.3, 1} {
				rps := load * batch / exec.Seconds()
				slo := time.Duration(float64(exec) * (1 + patience))
				least := 1
				for Unlucky([]Server{{least, exec, batch / exec.Seconds()}}, rps, slo) > 0.01 {
					least++
				}
				if want := max(1, int(math.Ceil(crew(load, batch, patience, 0.01)-1e-6))); least != want {
					t.Errorf("load %v in batches of %v, patience %v: %d, Crew says %d", load, batch, patience, least, want)
				}
			}
		}
	}
}

// The example of Unlucky's comment, and pools that cannot serve.
func TestUnlucky(t *testing.T) {
	const ms = time.Millisecond
	b, c := Server{2, 20 * ms, 100}, Server{1, 15 * ms, 800}
	slow := Server{2, 200 * ms, 5}
	three := b
	three.Count = 3
	for _, x := range []struct {
		pool []Server
		slo  time.Duration
		want float64
	}{
		{[]Server{b, c, slow}, 300 * ms, math.Exp(-2)},
		{[]Server{three, c}, 300 * ms, math.Exp(-2 * 100 * 0.28)},
		{[]Server{b, c}, 300 * ms, 1},
		{[]Server{three, c, slow}, 100 * ms, 1},
		{nil, 300 * ms, 1},
	} {
		if got := Unlucky(x.pool, 1000, x.slo); math.Abs(got-x.want) > 0.01*x.want {
			t.Errorf("%+v within %v: %v, want %v", x.pool, x.slo, got, x.want)
		}
	}
}
