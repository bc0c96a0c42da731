package coldstart

import (
	"testing"
	"time"
)

var start = time.Unix(1_000_000, 0)

func after(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

func TestFixed(t *testing.T) {
	var p Policy = NewFixed(DefaultKeepAlive)
	p.Observe(start, "mnist", time.Hour)
	if got := p.Windows(start, "mnist"); got != (Windows{KeepAlive: 300 * time.Second}) {
		t.Errorf("default keep-alive: %v", got)
	}
	p.Forget("mnist")
	if got := p.Windows(start, "mnist"); got != (Windows{KeepAlive: 300 * time.Second}) {
		t.Errorf("forgotten: %v", got)
	}
}

// The windows of INFless §3.5: pre-warming counts from the last execution,
// keep-alive from the loading.
func TestDecide(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		name    string
		now     int
		windows Windows
		want    Decision
	}{
		{"kept", 10, Windows{KeepAlive: 60 * s}, Decision{RetireAt: after(60)}},
		{"kept no longer", 90, Windows{KeepAlive: 60 * s}, Decision{RetireAt: after(60)}},
		{"retired at once until the pre-warming", 10, Windows{PreWarm: 30 * s, KeepAlive: 60 * s}, Decision{PreWarmAt: after(30), RetireAt: after(0)}},
		{"pre-warmed", 30, Windows{PreWarm: 30 * s, KeepAlive: 60 * s}, Decision{PreWarmAt: after(30), RetireAt: after(90)}},
		{"never kept", 0, Windows{}, Decision{RetireAt: after(0)}},
		{"nonsense is nothing", 0, Windows{PreWarm: -s, KeepAlive: -s}, Decision{RetireAt: after(0)}},
	} {
		if got := Decide(start, after(c.now), c.windows); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
