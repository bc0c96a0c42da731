package arrival

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// A window's moments equal those calculated from its gaps alone.
func TestWindowSlides(t *testing.T) {
	s := MMPP2(20, 200, 1, 2).Sampler(rand.New(rand.NewPCG(7, 8)))
	w := NewWindow(100)
	var all []float64
	for range 1000 {
		gap := s.Next()
		w.Add(gap)
		all = append(all, gap.Seconds())
		first := max(0, len(all)-100)
		want := direct(all, first)
		got := w.Moments()
		if got.N != len(all)-first || w.Len() != got.N {
			t.Fatalf("%d gaps of %d", got.N, len(all))
		}
		for _, v := range [][2]float64{{got.Mean, want.Mean}, {got.SCV, want.SCV}, {got.Skewness, want.Skewness}, {got.Lag1, want.Lag1}} {
			if !(math.Abs(v[0]-v[1]) < 1e-9) {
				t.Fatalf("after %d: %+v, want %+v", len(all), got, want)
			}
		}
	}
}

// direct calculates the moments of all[first:] in two passes.
func direct(all []float64, first int) Moments {
	gaps := all[first:]
	n, m := float64(len(gaps)), Moments{N: len(gaps)}
	for _, g := range gaps {
		m.Mean += g / n
	}
	var square, cube float64
	for _, g := range gaps {
		square += (g - m.Mean) * (g - m.Mean) / n
		cube += math.Pow(g-m.Mean, 3) / n
	}
	if square == 0 {
		return m
	}
	m.SCV, m.Skewness = square/m.Mean/m.Mean, cube/math.Pow(square, 1.5)
	// Each gap with the one before, also that which has left last.
	pairs := all[max(0, first-1):]
	var x, y, xy float64
	k := float64(len(pairs) - 1)
	for i := range len(pairs) - 1 {
		x, y, xy = x+pairs[i]/k, y+pairs[i+1]/k, xy+pairs[i]*pairs[i+1]/k
	}
	m.Lag1 = min(1, max(-1, (xy-x*y)/square))
	return m
}

// A pause of 200 s among gaps of about a millisecond leaves no trace once it has left
// the window: the moments are as exact as before.
func TestWindowForgetsAPause(t *testing.T) {
	w, r := NewWindow(50), rand.New(rand.NewPCG(1, 1))
	w.Add(200 * time.Second)
	if m := w.Moments(); m.Mean != 200 || m.SCV != 0 {
		t.Errorf("of one gap: %+v", m)
	}
	var gaps []float64
	for range 50 {
		g := time.Millisecond + time.Duration(r.IntN(1000))
		gaps = append(gaps, g.Seconds())
		w.Add(g)
	}
	got, want := w.Moments(), direct(gaps, 0)
	close(t, "SCV", got.SCV/want.SCV, 1, 1e-6)
	close(t, "skewness", got.Skewness, want.Skewness, 1e-6)
}

func TestWindowOfUselessGaps(t *testing.T) {
	for _, c := range []struct {
		name string
		gap  func(int) time.Duration
		says string
	}{
		{"zero", func(int) time.Duration { return 0 }, "mean gap is 0"},
		{"equal", func(int) time.Duration { return 7 * time.Millisecond }, ""},
		{"a pause", func(i int) time.Duration { return time.Millisecond + time.Duration(i/999)*200*time.Second }, ""},
		{"negative", func(i int) time.Duration { return -time.Second }, "mean gap is 0"},
	} {
		w := NewWindow(1000)
		for i := range 1000 {
			w.Add(c.gap(i))
		}
		m, note, err := Fit(w.Moments())
		t.Logf("%s: %+v: %q, %v", c.name, w.Moments(), note, err)
		if c.says != "" {
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v, want %q", c.name, err, c.says)
			}
			continue
		}
		if err != nil || note == "" {
			t.Errorf("%s: %q, %v", c.name, note, err)
		} else {
			close(t, c.name, m.Rate()*w.Moments().Mean, 1, 1e-9)
		}
	}
	if m := NewWindow(0).Moments(); m != (Moments{}) {
		t.Errorf("of nothing: %+v", m)
	}
}

// BenchmarkRefit measures a refit to a sliding window: a new gap, the moments, the
// fit.
func BenchmarkRefit(b *testing.B) {
	s, w := MMPP2(20, 200, 1, 2).Sampler(rand.New(rand.NewPCG(7, 8))), NewWindow(10_000)
	for range 20_000 {
		w.Add(s.Next())
	}
	for b.Loop() {
		w.Add(s.Next())
		if _, _, err := Fit(w.Moments()); err != nil {
			b.Fatal(err)
		}
	}
}
