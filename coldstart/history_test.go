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
	p := newHHP()
	all := append(times(94, 20*minute+30*time.Second), times(5, 30*minute+30*time.Second)...)
	observe(p, "f", append(all, 2*minute+30*time.Second)...)
	if got, want := p.Windows(start, "f"), between(18*minute, 34*minute+6*time.Second); !reflect.DeepEqual(got, want) {
		t.Errorf("windows %v, want %v", got, want)
	}
	// A head below a minute is none: the function is just kept.
	p = newHHP()
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
		p := newHHP()
		observe(p, "f", idle...)
		if got := p.Windows(start, "f"); !reflect.DeepEqual(got, standard) {
			t.Errorf("%s: %v, want %v", name, got, standard)
		}
	}
	p := newHHP()
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
	p := newHHP()
	observe(p, "f", append(times(3, minute), times(4, 10*time.Hour)...)...)
	w := p.Windows(start, "f")
	if w.PreWarm < 7*time.Hour || w.PreWarm > 9*time.Hour {
		t.Errorf("pre-warmed after %v, the last four were 10 h", w.PreWarm)
	}
	p = newHHP()
	observe(p, "f", 10*time.Hour, 10*time.Hour)
	if got, want := p.Windows(start, "f"), between(8*time.Hour+30*minute, 11*time.Hour+30*minute); !reflect.DeepEqual(got, want) {
		t.Errorf("windows %v, want 15 %% around 10 h, %v", got, want)
	}
}

// INFless §3.5. Idle times are 4½ minutes for most of a day, and then ten of 2½. The day's
// head and tail are 3.6 and 5.5 minutes (4 less 10 %, 5 plus 10 %), so pre-warm is 3.6 and
// keep-alive 1.9. Those of the last hour are 1.8 and 5.5, so 1.8 and 3.7. The sums with
// γ = 0.5 are 2.7 and 2.8 minutes.
func TestLSTHWeightsBothTermsINFlessSection35(t *testing.T) {
	const s = time.Second
	for gamma, want := range map[float64]Windows{
		0.5: {PreWarm: 162 * s, KeepAlive: 168 * s},
		0.7: {PreWarm: 184 * s, KeepAlive: 147 * s},
		1:   {PreWarm: 216 * s, KeepAlive: 114 * s},
	} {
		p := NewLSTH(gamma)
		last := observe(p, "f", append(times(300, 4*minute+30*s), times(10, 2*minute+30*s)...)...)
		got := p.Windows(last, "f")
		if (got.PreWarm-want.PreWarm).Abs() > s || (got.KeepAlive-want.KeepAlive).Abs() > s {
			t.Errorf("γ = %v: %v, want %v", gamma, got, want)
		}
	}
}

// The test of representativeness of Serverless in the Wild, §4.2, applies to each histogram
// ("like HHP", INFless §3.5). The last hour has one to nine idle times of 2½ minutes after a
// day of 20½: its windows are the standard keep-alive of four hours, those of the day 18 and
// 5.1 minutes. The sums with γ = 0.5 are 9 and 122.55 minutes. From ten on the hour has 1.8
// and 1.5.
func TestLSTHTestsEachTermINFlessSection35(t *testing.T) {
	const s = time.Second
	for n := 1; n <= 10; n++ {
		p := NewLSTH(0.5)
		observe(p, "f", times(66, 20*minute+30*s)...)
		now := start.Add(66*(20*minute+30*s) + 2*time.Hour) // Nothing of before is in the last hour.
		for range n {
			now = now.Add(2*minute + 30*s)
			p.Observe(now, "f", 2*minute+30*s)
		}
		want := Windows{PreWarm: 9 * minute, KeepAlive: 122*minute + 33*s}
		if n >= MinSamples {
			// Ten of 76 idle times are more than 5 %: the day's head is 1.8 minutes, too.
			want = Windows{PreWarm: 108 * s, KeepAlive: (1278*s + 90*s) / 2}
		} else if n > 3 { // So are four of 70.
			want = Windows{PreWarm: 54 * s, KeepAlive: (1278*s + 4*time.Hour) / 2}
		}
		if got := p.Windows(now, "f"); !reflect.DeepEqual(got, want) {
			t.Errorf("%d idle times in the last hour: %v, want %v", n, got, want)
		}
	}
}

// HHP as INFless describes it (§3.5) knows four hours. In these it is like HHP, and then it
// does not know the day's idle times.
func TestHHPWindowForgetsINFlessSection35(t *testing.T) {
	p, all := NewHHPWindow(), times(60, 10*minute+30*time.Second)
	last := observe(p, "f", all...)
	hhp := newHHP()
	observe(hhp, "f", all...)
	if got, want := p.Windows(last, "f"), hhp.Windows(last, "f"); !reflect.DeepEqual(got, want) || got.PreWarm == 0 {
		t.Errorf("in its window: %v, want HHP's %v", got, want)
	}
	standard := Windows{KeepAlive: 4 * time.Hour}
	if got := p.Windows(last.Add(3*time.Hour), "f"); !reflect.DeepEqual(got, standard) {
		t.Errorf("with an hour of idle times, too few: %v, want %v", got, standard)
	}
	if NewLSTH(1).Restore("f", p.Marshal("f")) == nil {
		t.Error("LSTH restores another policy's state")
	}
}

// A histogram does not have idle times that are older than its term.
func TestLSTHForgetsINFlessSection35(t *testing.T) {
	p := NewLSTH(0.5)
	last := observe(p, "f", times(60, 20*minute+30*time.Second)...)
	day := Windows{PreWarm: 9 * minute, KeepAlive: 122*minute + 33*time.Second}
	if got := p.Windows(last.Add(2*time.Hour), "f"); !reflect.DeepEqual(got, day) {
		t.Errorf("with no idle time in the last hour: %v, want half the day's 18 and 5.1 minutes and half the standard keep-alive, %v", got, day)
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
