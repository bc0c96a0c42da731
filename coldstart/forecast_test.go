package coldstart

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

var forecastEpoch = time.Unix(1_700_438_400, 0)

func sum(mass []float32) float64 {
	s := 0.0
	for _, m := range mass {
		s += float64(m)
	}
	return s
}

// within is the predicted chance that the idle time ends between from and to.
func within(f Forecast, from, to time.Duration) float64 {
	s := 0.0
	for i := stepOf(from); i <= stepOf(to); i++ {
		s += float64(f.Mass[i])
	}
	return s
}

func TestSteps(t *testing.T) {
	if Steps+1 > leaves {
		t.Fatalf("%d steps and one beyond, the tree has %d leaves", Steps, leaves)
	}
	for i := range Steps {
		if edge(i+1) <= edge(i) {
			t.Errorf("step %d is from %v to %v", i, edge(i), edge(i+1))
		}
		if stepOf(edge(i)) != i || stepOf(edge(i+1)-1) != i {
			t.Errorf("step %d: its ends are in %d and %d", i, stepOf(edge(i)), stepOf(edge(i+1)-1))
		}
	}
	if stepOf(-time.Second) != 0 || stepOf(stepLast) != Steps || stepOf(math.MaxInt64) != Steps {
		t.Error("idle times that are negative or too long have no step")
	}
}

// Without any knowledge, an idle time is about as likely to last one to two minutes as
// one to two hours.
func TestNothingKnown(t *testing.T) {
	f := newModel().Predict(forecastEpoch)
	if s := sum(f.Mass); math.Abs(s-1) > 1e-3 {
		t.Errorf("masses sum to %v", s)
	}
	minutes, hours := within(f, time.Minute, 2*time.Minute), within(f, time.Hour, 2*time.Hour)
	if minutes < hours/1.3 || minutes > hours*1.3 {
		t.Errorf("one to two minutes: %v, hours: %v", minutes, hours)
	}
}

// learn returns a model that has learned n idle times from f, and the time of the last.
func learn(n int, f func(i int) time.Duration) (*Model, time.Time) {
	m, now := newModel(), forecastEpoch
	for i := range n {
		idle := f(i)
		m.Learn(now, idle)
		now = now.Add(idle)
	}
	return m, now
}

// A few ticks of a timer are enough to expect the next one.
func TestTimerIsSeenSoon(t *testing.T) {
	m, now := learn(12, func(int) time.Duration { return 30 * time.Minute })
	if p := within(m.Predict(now), 28*time.Minute, 32*time.Minute); p < 0.85 {
		t.Errorf("after a dozen ticks, the next is expected with %v", p)
	}
}

// The model does not take chance for a pattern: with requests at random, the predicted
// rate is about the same at all ages.
func TestChanceStaysSmooth(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	m, now := learn(2000, func(int) time.Duration { return time.Duration(r.ExpFloat64() * float64(10*time.Minute)) })
	f := m.Predict(now)
	for _, from := range []time.Duration{time.Minute, 4 * time.Minute, 10 * time.Minute, 20 * time.Minute} {
		to := from + from/2
		want := math.Exp(-from.Minutes()/10) - math.Exp(-to.Minutes()/10)
		if got := within(f, from, to-1); got < 0.7*want || got > 1.4*want {
			t.Errorf("%v to %v: predicted %.4f, is %.4f", from, to, got, want)
		}
	}
}

// The model learns an order in which idle times follow each other, even if their
// distribution says nothing.
func TestOrderIsSeen(t *testing.T) {
	order := []time.Duration{5 * time.Minute, 20 * time.Minute, 55 * time.Minute}
	m, now := learn(60, func(i int) time.Duration { return order[i%3] })
	if p := within(m.Predict(now), 4*time.Minute+30*time.Second, 5*time.Minute+30*time.Second); p < 0.8 {
		t.Errorf("5 minutes follow on 20 and 55, and are expected with %v", p)
	}
}

// The model notices a change.
func TestChangeIsNoticed(t *testing.T) {
	m, now := learn(420, func(i int) time.Duration {
		if i < 400 {
			return 10 * time.Minute
		}
		return 45 * time.Minute
	})
	if p := within(m.Predict(now), 42*time.Minute, 48*time.Minute); p < 0.7 {
		t.Errorf("after twenty idle times of 45 minutes they are expected with %v", p)
	}
}

// At night requests are rarer than by day.
func TestTimeOfDay(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	m, now := newModel(), forecastEpoch
	for now.Before(forecastEpoch.Add(14 * 24 * time.Hour)) {
		idle := time.Duration(0)
		for ok := false; !ok; {
			idle += time.Duration(r.ExpFloat64() * float64(4*time.Minute))
			h := now.Add(idle).UTC().Hour()
			ok = h >= 8 && h < 18 || r.Float64() < 0.05
		}
		m.Learn(now, idle)
		now = now.Add(idle)
	}
	day := now.Truncate(24 * time.Hour).Add(24 * time.Hour)
	noon, night := within(m.Predict(day.Add(12*time.Hour)), 0, 10*time.Minute), within(m.Predict(day.Add(22*time.Hour)), 0, 10*time.Minute)
	if noon < 1.2*night {
		t.Errorf("a request within ten minutes: at noon %v, at night %v", noon, night)
	}
}

// In a burst one prediction is valid for several idle times.
func TestBurstsAreCheap(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	m, now := learn(1000, func(int) time.Duration { return time.Duration(r.Int64N(int64(10 * time.Second))) })
	before := m.Predict(now).Version
	for range 10 {
		m.Learn(now, time.Second)
		now = now.Add(time.Second)
		m.Predict(now)
	}
	if after := m.Predict(now).Version; after > before+1 {
		t.Errorf("%d predictions for ten short idle times", after-before)
	}
	m.Learn(now, time.Hour)
	if m.Predict(now.Add(time.Hour)).Version == before {
		t.Error("after a long idle time the prediction is still the old one")
	}
}

// restored returns the model after a restart.
func restored(t testing.TB, m *Model) (*Model, int) {
	t.Helper()
	w := newWireWriter('t', 1)
	m.Marshal(w)
	r, again := newWireReader('t', 1, *w), newModel()
	again.Restore(r)
	if err := r.Done(); err != nil {
		t.Fatal(err)
	}
	return again, len(*w)
}

func TestModelSurvives(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	m, now := learn(3000, func(i int) time.Duration {
		if i%9 == 0 {
			return 17 * time.Minute
		}
		return time.Duration(r.ExpFloat64() * float64(time.Minute))
	})
	m.Learn(now, 17*time.Minute)
	now = now.Add(17 * time.Minute)
	again, size := restored(t, m)
	if size > 4<<10 {
		t.Errorf("%d bytes", size)
	}
	if again.Learned() != m.Learned() {
		t.Errorf("%d idle times, were %d", again.Learned(), m.Learned())
	}
	a, b := m.Predict(now), again.Predict(now)
	apart := 0.0
	for i := range a.Mass {
		apart += math.Abs(float64(a.Mass[i]-b.Mass[i])) / 2
	}
	if apart > 0.05 {
		t.Errorf("the restored distribution is %.3f apart", apart)
	}
}

// Whatever the model learns, its predictions are distributions.
func FuzzModel(f *testing.F) {
	f.Add([]byte{1, 2, 3, 200, 255, 0, 17})
	f.Fuzz(func(t *testing.T, idle []byte) {
		m, now := newModel(), forecastEpoch
		for _, b := range idle[:min(len(idle), 200)] {
			d := time.Duration(math.Exp(float64(b)/255*16) * float64(time.Second))
			if b == 0 {
				d = 0
			}
			f := m.Predict(now)
			if s := sum(f.Mass); math.Abs(s-1) > 1e-2 {
				t.Fatalf("masses sum to %v", s)
			}
			for i, mass := range f.Mass {
				if !(mass >= 0 && mass <= 1.001) {
					t.Fatalf("step %d has %v", i, mass)
				}
			}
			m.Learn(now, d)
			now = now.Add(d)
		}
		restored(t, m)
	})
}

func BenchmarkPredict(b *testing.B) {
	r := rand.New(rand.NewPCG(9, 10))
	m, now := learn(2000, func(int) time.Duration { return time.Duration(r.ExpFloat64() * float64(5*time.Minute)) })
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(time.Hour)
		m.Predict(now)
	}
}
