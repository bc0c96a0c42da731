package coldstart

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

var start = time.Unix(1_000_000, 0)

func after(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

func TestFixed(t *testing.T) {
	var p Policy = NewFixed(DefaultKeepAlive)
	p.Observe(start, "mnist", time.Hour)
	if got := p.Windows(start, "mnist"); !reflect.DeepEqual(got, Windows{KeepAlive: 300 * time.Second}) {
		t.Errorf("default keep-alive: %v", got)
	}
	p.Forget("mnist")
	if got := p.Windows(start, "mnist"); !reflect.DeepEqual(got, Windows{KeepAlive: 300 * time.Second}) {
		t.Errorf("forgotten: %v", got)
	}
	if p.Marshal("mnist") != nil || p.Restore("mnist", nil) != nil || p.Restore("mnist", []byte{1}) == nil {
		t.Error("a fixed policy has a state")
	}
}

// The windows of INFless §3.5: pre-warming counts from the last execution, keep-alive
// from the start of the instance.
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
		{"parked", 1, Windows{KeepAlive: 60 * s, Park: 2 * s}, Decision{RetireAt: after(60), ParkAt: after(2)}},
	} {
		if got := Decide(start, after(c.now), c.windows); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// A function is kept for a moment and started again for a timer's tick.
func TestDecideLater(t *testing.T) {
	const s = time.Second
	w := Windows{KeepAlive: 10 * s, Later: []Window{{50 * s, 60 * s}, {110 * s, 130 * s}}}
	for now, want := range map[int]Decision{
		0:   {RetireAt: after(10)},
		9:   {RetireAt: after(10)},
		10:  {PreWarmAt: after(50), RetireAt: after(10)},
		50:  {PreWarmAt: after(50), RetireAt: after(60)},
		60:  {PreWarmAt: after(110), RetireAt: after(60)},
		129: {PreWarmAt: after(110), RetireAt: after(130)},
		500: {PreWarmAt: after(110), RetireAt: after(130)},
	} {
		if got := Decide(start, after(now), w); got != want {
			t.Errorf("after %d s: %v, want %v", now, got, want)
		}
	}
}

func TestNew(t *testing.T) {
	if want := []string{"faas-infer", "fixed", "hhp", "hhp-window", "lsth"}; !slices.Equal(Names(), want) {
		t.Errorf("names: %v, want %v", Names(), want)
	}
	for _, name := range Names() {
		p, err := New(name, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if w := p.Windows(start, "new"); w.PreWarm != 0 || w.KeepAlive < DefaultKeepAlive {
			t.Errorf("%s does not keep a function that it does not know: %v", name, w)
		}
	}
	for _, c := range []struct {
		name    string
		options Options
		says    string
	}{
		{"lru", Options{}, `unknown cold-start policy "lru": it is one of faas-infer, fixed, hhp, hhp-window, lsth`},
		{"fixed", Options{KeepAlive: -time.Second}, "the keep-alive time is -1s; it must not be negative"},
		{"faas-infer", Options{Price: -1}, "price of a cold start"},
		{"faas-infer", Options{Start: -1}, "time to start"},
		{"lsth", Options{Gamma: 1.5}, "γ is 1.5; it must be from 0 to 1"},
		{"lsth", Options{Gamma: math.NaN()}, "γ is NaN"},
	} {
		if _, err := New(c.name, c.options); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s %v: %v, want %q", c.name, c.options, err, c.says)
		}
	}
	for unparked, want := range map[bool]time.Duration{false: parkAfter, true: 0} {
		p, _ := New("faas-infer", Options{Unparked: unparked})
		p.Observe(start, "f", time.Minute)
		for _, function := range []string{"f", "new"} {
			if got := p.Windows(start, function).Park; got != want {
				t.Errorf("%s is parked after %v, want %v", function, got, want)
			}
		}
	}
	if p, _ := New("fixed", Options{KeepAlive: time.Minute}); p.Windows(start, "f").KeepAlive != time.Minute {
		t.Error("the keep-alive time is not used")
	}
}
