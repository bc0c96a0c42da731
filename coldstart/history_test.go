package coldstart

import (
	"reflect"
	"testing"
	"time"
)

const minute = time.Minute

// observe reports consecutive idle times to a policy and returns when the last one
// ended.
func observe(p Policy, function string, idle ...time.Duration) time.Time {
	now := start
	for _, d := range idle {
		now = now.Add(d)
		p.Observe(now, function, d)
	}
	return now
}

func times(n int, d time.Duration) []time.Duration {
	all := make([]time.Duration, n)
	for i := range all {
		all[i] = d
	}
	return all
}

// Serverless in the Wild, §4.2. There are 94 idle times of 20½ minutes, five of 30½
// and one of 2½. The head is the 5th percentile, 20 minutes rounded down, less 10 %.
// The tail is the 99th percentile, 31 minutes rounded up, plus 10 %.
func TestHHPHeadAndTailServerlessInTheWildSection42(t *testing.T) {
	p := NewHHP()
	all := append(times(94, 20*minute+30*time.Second), times(5, 30*minute+30*time.Second)...)
	observe(p, "f", append(all, 2*minute+30*time.Second)...)
	if got, want := p.Windows(start, "f"), between(18*minute, 34*minute+6*time.Second); !reflect.DeepEqual(got, want) {
		t.Errorf("windows %v, want %v", got, want)
	}
	// A head below a minute is none: the function is just kept.
	p = NewHHP()
	observe(p, "f", times(100, 30*time.Second)...)
	if got, want := p.Windows(start, "f"), (Windows{KeepAlive: 66 * time.Second}); !reflect.DeepEqual(got, want) {
		t.Errorf("windows %v, want %v", got, want)
	}
}

// If the histogram says too little, a function is kept for its whole range.
func TestHHPStandardKeepAliveServerlessInTheWildSection42(t *testing.T) {
	standard := Windows{KeepAlive: 4 * time.Hour}
	var flat []time.Duration
	for i := range 4 * 240 {
		flat = append(flat, time.Duration(i%240)*minute)
	}
	for name, idle := range map[string][]time.Duration{
		"nothing is known": nil, "too few": times(MinSamples-1, 10*minute), "no length stands out": flat,
	} {
		p := NewHHP()
		observe(p, "f", idle...)
		if got := p.Windows(start, "f"); !reflect.DeepEqual(got, standard) {
			t.Errorf("%s: %v, want %v", name, got, standard)
		}
	}
	p := NewHHP()
	observe(p, "f", times(MinSamples, 10*minute)...)
	if got := p.Windows(start, "f"); reflect.DeepEqual(got, standard) {
		t.Error("enough idle times are too few")
	}
	p.Forget("f")
	if got := p.Windows(start, "f"); !reflect.DeepEqual(got, standard) {
		t.Errorf("what was forgotten is known: %v", got)
	}
}

// If most idle times are out of bounds, the policy forecasts the next one.
func TestHHPOutOfBoundsServerlessInTheWildSection42(t *testing.T) {
	p := NewHHP()
	observe(p, "f", append(times(3, minute), times(4, 10*time.Hour)...)...)
	w := p.Windows(start, "f")
	if w.PreWarm < 7*time.Hour || w.PreWarm > 9*time.Hour {
		t.Errorf("pre-warmed after %v, the last four were 10 h", w.PreWarm)
	}
	p = NewHHP()
	observe(p, "f", 10*time.Hour, 10*time.Hour)
	if got, want := p.Windows(start, "f"), between(8*time.Hour+30*minute, 11*time.Hour+30*minute); !reflect.DeepEqual(got, want) {
		t.Errorf("windows %v, want 15 %% around 10 h, %v", got, want)
	}
}

// INFless §3.5. Idle times are 20½ minutes for most of a day, and then two of 10½. The
// day's head and tail are 18 and 23.1 minutes (20 less 10 %, 21 plus 10 %), so
// pre-warm is 18 and keep-alive 5.1. Those of the last hour are 9 and 23.1, so 9 and
// 14.1. The sums with γ = 0.5 are 13.5 and 9.6 minutes.
func TestLSTHWeightsBothTermsINFlessSection35(t *testing.T) {
	for gamma, want := range map[float64]Windows{
		0.5: {PreWarm: 13*minute + 30*time.Second, KeepAlive: 9*minute + 36*time.Second},
		0.7: {PreWarm: 15*minute + 18*time.Second, KeepAlive: 7*minute + 48*time.Second},
		1:   {PreWarm: 18 * minute, KeepAlive: 5*minute + 6*time.Second},
	} {
		p := NewLSTH(gamma)
		last := observe(p, "f", append(times(66, 20*minute+30*time.Second), times(2, 10*minute+30*time.Second)...)...)
		if got := p.Windows(last, "f"); !reflect.DeepEqual(got, want) {
			t.Errorf("γ = %v: %v, want %v", gamma, got, want)
		}
	}
}

// A histogram does not have idle times that are older than its term.
func TestLSTHForgetsINFlessSection35(t *testing.T) {
	p := NewLSTH(0.5)
	last := observe(p, "f", times(60, 20*minute+30*time.Second)...)
	day := Windows{PreWarm: 18 * minute, KeepAlive: 5*minute + 6*time.Second}
	if got := p.Windows(last.Add(2*time.Hour), "f"); !reflect.DeepEqual(got, day) {
		t.Errorf("with no idle time in the last hour: %v, want the day's %v", got, day)
	}
	if got, want := p.Windows(last.Add(25*time.Hour), "f"), (Windows{KeepAlive: 4 * time.Hour}); !reflect.DeepEqual(got, want) {
		t.Errorf("with no idle time in the last day: %v, want %v", got, want)
	}
	p = NewLSTH(0.5)
	last = observe(p, "f", 10*time.Hour, 10*time.Hour)
	if got, want := p.Windows(last, "f"), between(8*time.Hour+30*minute, 11*time.Hour+30*minute); !reflect.DeepEqual(got, want) {
		t.Errorf("out of bounds: %v, want %v", got, want)
	}
	p.Forget("f")
	if got := p.Windows(last, "f"); got.KeepAlive != 4*time.Hour {
		t.Errorf("what was forgotten is known: %v", got)
	}
}
