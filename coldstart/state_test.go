package coldstart

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"
)

// learned returns a policy that has learned a function's idle times of all kinds.
func learned(t testing.TB, name string, n int) (Policy, time.Time) {
	t.Helper()
	p, err := New(name, Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(3, 4))
	now := start
	for i := range n {
		idle := seconds(20 * r.ExpFloat64())
		switch {
		case i%5 == 0:
			idle = 17 * minute
		case i%11 == 0:
			idle = seconds(20000 * r.ExpFloat64())
		}
		now = now.Add(idle)
		p.Observe(now, "f", idle)
	}
	return p, now
}

// A policy's state survives a restart and is small.
func TestStateSurvives(t *testing.T) {
	for _, name := range []string{"hhp", "hhp-window", "lsth", "faas-infer"} {
		for _, n := range []int{1, 31, 2101} {
			p, last := learned(t, name, n)
			state := p.Marshal("f")
			again, _ := New(name, Options{})
			if err := again.Restore("f", state); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if len(state) > 6<<10 {
				t.Errorf("%s after %d idle times: %d bytes", name, n, len(state))
			}
			agree(t, name, p.Windows(last, "f"), again.Windows(last, "f"))
			for _, q := range []Policy{p, again} {
				q.Observe(last.Add(minute), "f", minute)
			}
			agree(t, name, p.Windows(last.Add(minute), "f"), again.Windows(last.Add(minute), "f"))
			if p.Marshal("g") != nil {
				t.Errorf("%s knows a function that was never there", name)
			}
		}
	}
}

// agree compares two policies' windows. The restored one has rounded numbers and fewer
// recent idle times. So the windows may differ at moments that hardly pay or hardly do
// not.
func agree(t *testing.T, name string, a, b Windows) {
	t.Helper()
	if name != "faas-infer" {
		if !reflect.DeepEqual(a, b) {
			t.Errorf("%s: restored %v, was %v", name, b, a)
		}
		return
	}
	var loaded, both time.Duration
	each(a, func(from, to time.Duration) {
		loaded += min(to, Range) - min(from, Range)
		each(b, func(from2, to2 time.Duration) { both += max(0, min(to, to2, Range)-max(from, from2)) })
	})
	if both < loaded*4/5 {
		t.Errorf("%s: restored %v, was %v", name, b, a)
	}
}

func TestRestoreRefuses(t *testing.T) {
	for _, name := range []string{"hhp", "hhp-window", "lsth", "faas-infer"} {
		p, last := learned(t, name, 100)
		state, before := p.Marshal("f"), p.Windows(last, "f")
		damaged := [][]byte{nil, {state[0]}, {'?', 1}, {state[0], 99}, append(state[:len(state):len(state)], 0)}
		for n := 2; n < len(state); n += 7 {
			damaged = append(damaged, state[:n])
		}
		for _, d := range damaged {
			if err := p.Restore("f", d); err == nil || !strings.Contains(err.Error(), "cannot be restored: ") {
				t.Errorf("%s: %d bytes that are damaged: %v", name, len(d), err)
			}
		}
		if after := p.Windows(last, "f"); !reflect.DeepEqual(before, after) {
			t.Errorf("%s: a state that was refused changed %v to %v", name, before, after)
		}
	}
}

// Whatever the state, a policy that restores it returns valid windows.
func FuzzRestore(f *testing.F) {
	for _, name := range []string{"hhp", "hhp-window", "lsth", "faas-infer"} {
		p, _ := learned(f, name, 200)
		f.Add(p.Marshal("f"), int64(600))
	}
	f.Fuzz(func(t *testing.T, state []byte, idle int64) {
		for _, name := range Names() {
			p, _ := New(name, Options{})
			if p.Restore("f", state) != nil {
				continue
			}
			sound(t, name, p.Windows(start, "f"))
			d := time.Duration(max(0, idle)) % (400 * 24 * time.Hour)
			p.Observe(start.Add(d), "f", d)
			sound(t, name, p.Windows(start.Add(d), "f"))
			if name == "fixed" {
				continue
			}
			if again, _ := New(name, Options{}); again.Restore("f", p.Marshal("f")) != nil {
				t.Errorf("%s does not take up its own state", name)
			}
		}
	})
}

// sound checks that windows are in order, apart from each other, and not empty.
func sound(t *testing.T, name string, w Windows) {
	t.Helper()
	end := time.Duration(-1)
	each(w, func(from, to time.Duration) {
		if from < 0 || to < from || from <= end && end >= 0 {
			t.Errorf("%s: windows %v", name, w)
		}
		end = to
	})
}
