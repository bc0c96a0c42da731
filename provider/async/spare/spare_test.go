package spare

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestDecide(t *testing.T) {
	stored := time.Date(2026, 11, 25, 8, 0, 0, 0, time.UTC)
	noon, end := stored.Add(4*time.Hour), stored.Add(Age)
	for name, test := range map[string]struct {
		now   time.Time
		state State
		want  Kind
		at    time.Time
		why   string
	}{
		"nothing else runs":         {noon, State{Ready: 1}, Run, time.Time{}, ""},
		"40 % of the CPU":           {noon, State{Ready: 1, CPU: 0.4}, Run, time.Time{}, ""},
		"41 % of the CPU":           {noon, State{Ready: 1, CPU: 0.41}, Wait, noon.Add(Pause), "more than 40 %"},
		"unknown CPU":               {noon, State{Ready: 1, CPU: math.NaN()}, Wait, noon.Add(Pause), "CPU"},
		"no instance":               {noon, State{}, Wait, noon.Add(Pause), "no ready instance"},
		"one of five is overloaded": {noon, State{Ready: 5, Overloaded: 1}, Wait, noon.Add(Pause), "overloaded"},
		"interference":              {noon, State{Ready: 5, Interfered: 1}, Wait, noon.Add(Pause), "interferes"},
		"others wait":               {noon, State{Ready: 1, Waiting: 1}, Wait, noon.Add(Pause), "other requests wait"},
		"just before its end":       {end.Add(-time.Millisecond), State{}, Wait, end, "no ready instance"},
		"just before its end, idle": {end.Add(-time.Millisecond), State{Ready: 1}, Run, time.Time{}, ""},
		"expired":                   {end, State{Ready: 1, CPU: 0.9}, Expired, time.Time{}, "24h0m0s as a best-effort request: a node"},
		"expired while it is idle":  {end, State{Ready: 1}, Expired, time.Time{}, "busy until now"},
	} {
		t.Run(name, func(t *testing.T) {
			v := Decide(test.now, stored, Age, test.state)
			if v.Kind != test.want || !v.At.Equal(test.at) || !strings.Contains(v.Why, test.why) || (v.Why == "") != (v.Kind == Run) {
				t.Errorf("%+v", v)
			}
		})
	}
}

// A request runs or expires, whatever happens: it never waits beyond its age.
func FuzzDecide(f *testing.F) {
	f.Add(int64(5), 1, 0, 0, 0.1, 0)
	f.Fuzz(func(t *testing.T, age int64, ready, overloaded, interfered int, cpu float64, waiting int) {
		stored := time.Unix(1, 0)
		now := stored.Add(time.Duration(age))
		v := Decide(now, stored, Age, State{Ready: ready, Overloaded: overloaded, Interfered: interfered, CPU: cpu, Waiting: waiting})
		switch {
		case v.Kind == Run && (overloaded > 0 || interfered > 0 || cpu > MaxCPU || waiting > 0 || ready == 0):
			t.Errorf("it runs: %+v", v)
		case v.Kind == Wait && (!v.At.After(now) || v.At.After(stored.Add(Age)) || v.At.After(now.Add(Pause))):
			t.Errorf("it waits until %v at %v", v.At, now)
		case (v.Kind == Expired) != (now.Sub(stored) >= Age):
			t.Errorf("%+v at the age of %v", v, now.Sub(stored))
		}
	})
}

func TestParseClass(t *testing.T) {
	for _, test := range []struct {
		values []string
		want   bool
		err    string
	}{
		{nil, false, ""},
		{[]string{"best-effort"}, true, ""},
		{[]string{" best-effort "}, true, ""},
		{[]string{"batch"}, false, `the header X-Infer-Class is "batch": it must be "best-effort"`},
		{[]string{""}, false, "must be"},
		{[]string{"Best-Effort"}, false, "must be"},
		{[]string{"best-effort", "fast"}, false, `"fast"`},
		{[]string{strings.Repeat("ä", 1000)}, false, "…"},
	} {
		got, err := ParseClass(test.values)
		if got != test.want || (err == nil) != (test.err == "") || err != nil && (!strings.Contains(err.Error(), test.err) || len(err.Error()) > 300) {
			t.Errorf("%q: %v, %v", test.values, got, err)
		}
	}
}
