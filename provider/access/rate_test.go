package access

import (
	"fmt"
	"testing"
	"time"
)

func TestParseRate(t *testing.T) {
	for text, want := range map[string]Rate{"100/s": {100, time.Second}, "60/m": {60, time.Minute}, "1000000/h": {1000000, time.Hour}} {
		if got, ok := ParseRate(text); !ok || got != want || got.String() != text {
			t.Errorf("%s: %v, %v", text, got, ok)
		}
	}
	for _, text := range []string{"", "100", "/s", "0/s", "-1/s", "+1/s", "1.5/s", "1000001/s", "1/d", "1/s/s", "1/ s", "9999999999999999999/s"} {
		if got, ok := ParseRate(text); ok {
			t.Errorf("%q is %v", text, got)
		}
	}
}

// A caller may send the requests of one unit of time at once, and then as many as become free. Others
// have their own.
func TestLimiter(t *testing.T) {
	l := NewLimiter(Rate{2, time.Second})
	for i, c := range []struct {
		caller string
		after  time.Duration
		want   Outcome
	}{
		{"a", 0, Outcome{true, 2, 1, 500 * time.Millisecond, 0}},
		{"a", 0, Outcome{true, 2, 0, time.Second, 0}},
		{"a", 0, Outcome{false, 2, 0, time.Second, 500 * time.Millisecond}},
		{"b", 0, Outcome{true, 2, 1, 500 * time.Millisecond, 0}},
		{"a", 250 * time.Millisecond, Outcome{false, 2, 0, 750 * time.Millisecond, 250 * time.Millisecond}},
		{"a", 500 * time.Millisecond, Outcome{true, 2, 0, time.Second, 0}},
		{"a", time.Hour, Outcome{true, 2, 1, 500 * time.Millisecond, 0}},
	} {
		if got := l.Take(c.caller, now.Add(c.after)); got != c.want {
			t.Errorf("%d: %+v, want %+v", i, got, c.want)
		}
	}
}

// Any number of callers takes a bounded memory, and those that send now are not forgotten.
func TestLimiterIsBounded(t *testing.T) {
	l := NewLimiter(Rate{1, time.Hour})
	l.Take("busy", now)
	for i := range 3 * maxCallers {
		l.Take(fmt.Sprint(i), now)
		if i%1000 == 0 && l.Take("busy", now).Allowed {
			t.Fatalf("after %d other callers a busy one begins anew", i)
		}
	}
	if n := len(l.recent) + len(l.earlier); n > 2*maxCallers {
		t.Errorf("%d callers are remembered", n)
	}
}
