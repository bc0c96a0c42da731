package coldstart

import (
	"bufio"
	"compress/gzip"
	"encoding/csv"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// replayed is the result of a policy on a load.
type replayed struct {
	requests, cold int
	// idle is how long the function was loaded and had no request, reserved the
	// part of it in which the instance held CPU and GPU share, too.
	idle, reserved time.Duration
}

// epoch is a Monday, midnight.
var epoch = time.Unix(1_700_438_400, 0).UTC()

// part is a load from one time to another.
func part(load []time.Duration, from, to time.Duration) (out []time.Duration) {
	for _, at := range load {
		if from <= at && at < to {
			out = append(out, at-from)
		}
	}
	return out
}

// replay applies a policy to a load that lasts until end. Executions take no time, as
// in Serverless in the Wild, §5.1, and an instance starts at once. A request is cold
// if its function is not loaded when it comes.
func replay(p Policy, load []time.Duration, end time.Duration) replayed {
	o := replayed{requests: len(load), cold: 1} // The first is always cold.
	for i, at := range load {
		last := epoch.Add(at)
		idle, more := end-at, i+1 < len(load)
		if more {
			idle = load[i+1] - at
		}
		loaded := false
		w := p.Windows(last, "f")
		each(w, func(from, to time.Duration) {
			loaded = loaded || from <= idle && idle < to
			o.idle += min(to, idle) - min(from, idle)
			if w.Park > 0 {
				to = min(to, max(from, w.Park))
			}
			o.reserved += min(to, idle) - min(from, idle)
		})
		if more {
			if !loaded {
				o.cold++
			}
			p.Observe(last.Add(idle), "f", idle)
		}
	}
	return o
}

// each calls f with every span in which a function is loaded.
func each(w Windows, f func(from, to time.Duration)) {
	f(w.PreWarm, w.PreWarm+w.KeepAlive)
	for _, l := range w.Later {
		f(l.From, l.To)
	}
}

// against is the relative difference of cold starts and idle time between two
// policies, in per cent.
func (o replayed) against(base replayed) (cold, idle float64) {
	return 100 * (float64(o.cold)/float64(base.cold) - 1), 100 * (o.idle.Seconds()/base.idle.Seconds() - 1)
}

// recorded has INFless' three loads (§5.1, from Azure Functions): requests per minute,
// spread at random in the minute.
func recorded(t testing.TB) map[string][]time.Duration {
	t.Helper()
	file, err := os.Open("../lab/arrivals/data/azure-7d.csv.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	text, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	table := csv.NewReader(text)
	table.Comment = '#'
	rows, err := table.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]time.Duration{}
	for k, name := range rows[0][1:] {
		r := rand.New(rand.NewPCG(7, 1))
		var load []time.Duration
		for minutes, row := range rows[1:] {
			n, err := strconv.Atoi(row[k+1])
			if err != nil {
				t.Fatal(err)
			}
			for range n {
				load = append(load, time.Duration(minutes)*time.Minute+time.Duration(r.Int64N(int64(time.Minute))))
			}
		}
		slices.Sort(load)
		all[name] = load
	}
	return all
}

// All policies on loads of all characters, most of them drawn at random here.
// testdata/loads.txt has, for each, by how much ours may at most change HHP's
// cold starts and idling.
//
// Where idle times have no pattern, HHP is about as good as can be: what lowers one
// figure raises the other. Then ours has far fewer cold starts for little more
// idling. Where there is a pattern that a histogram does not show (two timers, a
// change, an order), it idles far less with no more cold starts.
func TestAgainstHHP(t *testing.T) {
	all := recorded(t)
	for i, l := range loads {
		all[l.name] = l.make(rand.New(rand.NewPCG(uint64(i), 5)))
	}
	bounds, err := os.Open("testdata/loads.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer bounds.Close()
	checked := 0
	for lines := bufio.NewScanner(bounds); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		var name string
		var maxCold, maxIdle float64
		var from, to time.Duration
		if _, err := fmt.Sscan(line, &name, &maxCold, &maxIdle, &from, &to); err != nil || all[name] == nil {
			t.Fatalf("%q: %v", line, err)
		}
		load, end := part(all[name], from*day, to*day), (to-from)*day
		hhp := replay(newHHP(), load, end)
		ours := replay(newPriced(0, DefaultStart), load, end)
		cold, idle := ours.against(hhp)
		reserved := 100 * (ours.reserved.Seconds()/hhp.reserved.Seconds() - 1)
		t.Logf("%-18s %6d requests, HHP %3d cold, %5.1f h idle; ours %3d (%+.0f %%), %5.1f h (%+.0f %%), %.1f h with CPU (%+.0f %%)", name, hhp.requests, hhp.cold, hhp.idle.Hours(), ours.cold, cold, ours.idle.Hours(), idle, ours.reserved.Hours(), reserved)
		if reserved > -70 {
			t.Errorf("%s: idle instances hold CPU and GPU share for %+.1f %% of the time under HHP", name, reserved)
		}
		if cold > maxCold || idle > maxIdle {
			t.Errorf("%s: cold starts %+.1f %%, idle %+.1f %% against HHP; at most %+.0f and %+.0f", name, cold, idle, maxCold, maxIdle)
		}
		checked++
	}
	if checked != len(all) {
		t.Errorf("testdata/loads.txt has %d loads of %d", checked, len(all))
	}
}

// With requests at random no policy can lower both. The probability that a request
// finds the function loaded equals the share of time for which it is loaded. So the
// share of cold requests and the share of time loaded sum to 1. This is the meaning of
// "cannot be reached" in such loads, and it checks the replay.
func TestMemorylessLoadsLeaveNoChoice(t *testing.T) {
	const end = 4 * day
	load := part(poisson(rand.New(rand.NewPCG(1, 9)), func(time.Duration) float64 { return 1.0 / 200 }), 0, end)
	for _, name := range Names() {
		p, err := New(name, Options{Price: 150 * time.Second, KeepAlive: 2 * time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		o := replay(p, load, end)
		if sum := float64(o.cold)/float64(o.requests) + o.idle.Seconds()/end.Seconds(); sum < 0.95 || sum > 1.05 {
			t.Errorf("%s: %d of %d cold, loaded for %v of four days: sum of the shares %.3f", name, o.cold, o.requests, o.idle, sum)
		}
	}
}

// A higher price brings fewer cold starts.
func TestPriceBuysWarmth(t *testing.T) {
	const end = 3 * day
	load := part(recorded(t)["sporadic"], 0, end)
	before := replay(newPriced(10*time.Second, DefaultStart), load, end)
	for _, price := range []time.Duration{time.Minute, 10 * time.Minute, 2 * time.Hour} {
		o := replay(newPriced(price, DefaultStart), load, end)
		if o.cold >= before.cold || o.idle <= before.idle {
			t.Errorf("at %v: %+v, at less %+v", price, o, before)
		}
		before = o
	}
}

// A timer's function is loaded when it ticks, and not for long.
func TestTimer(t *testing.T) {
	p := newPriced(0, DefaultStart)
	last := observe(p, "f", times(100, time.Hour)...)
	w := p.Windows(last, "f")
	loaded, hit := time.Duration(0), false
	each(w, func(from, to time.Duration) {
		loaded += min(to, 2*time.Hour) - min(from, 2*time.Hour)
		hit = hit || from <= time.Hour-DefaultStart && to > time.Hour
	})
	if !hit || loaded > 10*time.Minute {
		t.Errorf("windows %v for a function that is called every hour", w)
	}
	if d := Decide(last, last.Add(time.Minute), w); d.PreWarmAt.Before(last.Add(50*time.Minute)) || !d.RetireAt.Before(last.Add(time.Minute)) || d.ParkAt != last.Add(parkAfter) {
		t.Errorf("decision %+v", d)
	}
	p.Forget("f")
	if got := p.Windows(last, "f"); got.KeepAlive != 4*time.Hour {
		t.Errorf("what was forgotten is known: %v", got)
	}
}

// Unloading for a moment saves less than loading again costs.
func TestWindowsAreWorthwhile(t *testing.T) {
	p, last := learned(t, "faas-infer", 500)
	l := p.(*Priced).functions["f"]
	l.expect(l.model.Predict(last))
	for price := range prices {
		w := l.windows(price, 5*time.Second)
		sound(t, "faas-infer", w)
		end := time.Duration(0)
		each(w, func(from, to time.Duration) {
			if to > 0 && from != 0 && from-end < minUnloaded {
				t.Errorf("price %d: without an instance from %v to %v only", price, end, from)
			}
			end = to
		})
	}
}

// The benchmark is the work for an idle time, from observing it to the next windows.
func BenchmarkIdleTime(b *testing.B) {
	for _, name := range Names() {
		b.Run(name, func(b *testing.B) {
			p, now := learned(b, name, 2000)
			r := rand.New(rand.NewPCG(5, 6))
			b.ReportAllocs()
			for b.Loop() {
				idle := time.Duration(300 * r.ExpFloat64() * float64(time.Second))
				now = now.Add(idle)
				p.Observe(now, "f", idle)
				p.Windows(now, "f")
			}
		})
	}
}
