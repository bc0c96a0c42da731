package peers

import (
	"math/rand/v2"
	"testing"
	"time"
)

const ms = time.Millisecond

// The example of kept's comment.
func TestKeptByAnIdealServer(t *testing.T) {
	times := engineTimes{1: 10 * ms, 2: 15 * ms}
	arrivals := []time.Duration{0, 1 * ms, 2 * ms, 3 * ms}
	if got := times.kept(arrivals, 20*ms, 2); got != 0.5 {
		t.Errorf("%v are kept, not half", got)
	}
	if got := times.kept(arrivals, 25*ms, 2); got != 0.75 {
		t.Errorf("%v are kept with 25 ms: the first, and the second and third together at 25 ms", got)
	}
	if got := times.kept(nil, 20*ms, 2); got != 0 {
		t.Errorf("%v without requests", got)
	}
}

// A batch takes the time of the next larger one that was measured.
func TestEngineTimes(t *testing.T) {
	times := engineTimes{1: 10 * ms, 2: 15 * ms, 4: 20 * ms, 8: 60 * ms}
	if got := times.of(3); got != 20*ms {
		t.Errorf("a batch of 3 takes %v", got)
	}
	if got := times.loop(50 * ms); got != 200 {
		t.Errorf("the engine alone executes %v requests/s, not 4 each 20 ms", got)
	}
}

// A longer objective raises the limit, to the engine's own rate. A trial is too short to tell a little more from it.
func TestLimitOfAnIdealServer(t *testing.T) {
	times := engineTimes{1: 33 * ms}
	last := 0.0
	for _, slo := range []time.Duration{40 * ms, 100 * ms, 400 * ms, 4000 * ms} {
		s := &subject{Trials: Trials{SLO: slo}}
		got, err := times.limit(s)
		if err != nil {
			t.Fatal(err)
		}
		if got > times.loop(slo)*1.15 || got < last {
			t.Errorf("%v requests/s with %v, of %v; %v with a shorter one", got, slo, times.loop(slo), last)
		}
		last = got
	}
	if last < 28 {
		t.Errorf("%v requests/s, though the objective is long", last)
	}
}

func FuzzKept(f *testing.F) {
	f.Add(uint64(1), uint8(3))
	f.Fuzz(func(t *testing.T, seed uint64, most uint8) {
		rng := rand.New(rand.NewPCG(seed, 0))
		times := engineTimes{1: time.Duration(1 + rng.Int64N(int64(50*ms)))}
		times[8] = times[1] + time.Duration(rng.Int64N(int64(100*ms)))
		var arrivals []time.Duration
		for at := time.Duration(0); len(arrivals) < 100; at += time.Duration(rng.Int64N(int64(40 * ms))) {
			arrivals = append(arrivals, at)
		}
		if got := times.kept(arrivals, 80*ms, 1+int(most)%8); got < 0 || got > 1 {
			t.Errorf("%v", got)
		}
	})
}
