package scaling

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// turns is what happens to two functions that are called in turn on a node with room for
// one instance.
type turns struct {
	calls, starts, warm int
	// longest is the longest wait of a call, all the sum.
	longest, all time.Duration
	// loading is the part of the time in which the room was taken by an instance that loads.
	loading float64
}

func (t turns) String() string {
	return fmt.Sprintf("%d of %d calls start an instance, %d find one; %.0f %% of the time loads; a call waits for %v on average and %v at most",
		t.starts, t.calls, t.warm, 100*t.loading, t.all/time.Duration(t.calls), t.longest)
}

// takeTurns calls two functions in turn, one every period, for ten minutes. Their instances
// take load to load, and their requests may wait for coldWait.
func takeTurns(period, load, coldWait time.Duration) (t turns) {
	const tick, lasts, slo = 100 * time.Millisecond, 10 * time.Minute, 200 * time.Millisecond
	w := newWorld(DefaultSettings())
	w.coldTime = load
	w.nodes = []cluster.Node{{Name: "n", Total: cluster.Resources{CPU: 1000, Memory: 1 << 30}}}
	config := cluster.Config{Batch: 1, Resources: cluster.Resources{CPU: 1000, Memory: 1 << 29}}
	waiting := map[string][]time.Time{}
	for _, name := range []string{"f", "g"} {
		f := w.function(name)
		f.SLO, f.ColdWait, f.Configs = slo, coldWait, []capacity.Candidate{{Config: config, Exec: 10 * time.Millisecond}}
	}
	ticks := 0
	for at := time.Duration(0); at < lasts; at += tick {
		w.now = epoch.Add(at)
		if at%period == 0 {
			name := []string{"f", "g"}[int(at/period)%2]
			waiting[name] = append(waiting[name], w.now)
			t.calls++
		}
		for _, f := range w.functions {
			f.Waiting = len(waiting[f.Name])
		}
		w.settle()
		for _, f := range w.functions {
			for i := range f.Instances {
				in := &f.Instances[i]
				if in.State != cluster.Ready {
					ticks++
					continue
				}
				in.Loading = load
				for _, since := range waiting[f.Name] {
					if since == w.now {
						t.warm++
					}
					t.longest, t.all = max(t.longest, w.now.Sub(since)), t.all+w.now.Sub(since)
				}
				waiting[f.Name], f.Waiting = nil, 0
			}
		}
		t.starts += len(w.scale().Start)
	}
	t.loading = float64(ticks) * tick.Seconds() / lasts.Seconds()
	return t
}

// Two functions that take turns do not load at each call, and no call waits for longer than
// it may. The longer an instance takes to load, the longer it stays.
func TestFunctionsThatTakeTurns(t *testing.T) {
	const slo, coldWait = 200 * time.Millisecond, 30 * time.Second
	for _, c := range []struct{ period, load time.Duration }{
		{2 * time.Second, time.Second}, {2 * time.Second, 5 * time.Second}, {5 * time.Second, 2 * time.Second}, {time.Second, 10 * time.Second},
	} {
		before, after := takeTurns(c.period, c.load, 0), takeTurns(c.period, c.load, coldWait)
		t.Logf("a call every %v, %v to load\n%v\nwithout a least lifetime:\n%v", c.period, c.load, after, before)
		if after.longest > slo+coldWait {
			t.Errorf("a call every %v, %v to load: a call waited for %v", c.period, c.load, after.longest)
		}
		if after.starts >= before.starts || after.loading >= before.loading || after.warm <= before.warm {
			t.Errorf("a call every %v, %v to load: %d starts and %d warm calls, without a least lifetime %d and %d", c.period, c.load, after.starts, after.warm, before.starts, before.warm)
		}
	}
}

// FaasCache (ASPLOS'21): of idle instances, the one makes room that is cheapest to load for
// what it holds, and the dearer ones in their turn. An instance that was used more often is
// worth more.
func TestGreedyDual(t *testing.T) {
	e := New(DefaultSettings())
	node := cluster.Node{Name: "n", Total: cluster.Resources{CPU: 10_000, Memory: 10 << 30}}
	value := func(name string, load time.Duration, bytes int64, idle ...time.Duration) (worth float64) {
		in := Running{ID: cluster.InstanceID(name), Node: "n", State: cluster.Ready, Loading: load, Config: cluster.Config{Batch: 1, Resources: cluster.Resources{CPU: 100, Memory: bytes}}}
		v := &view{Function: Function{Name: name}, engine: e, memory: new(memory)}
		for _, since := range idle {
			in.IdleSince = epoch.Add(since)
			v.Instances = []Running{in}
			appraise(v, func(string) *cluster.Node { return &node })
			appraise(v, func(string) *cluster.Node { return &node }) // It is still idle since the same use.
			worth = v.memory.worths[in.ID].value
		}
		return worth
	}
	for _, c := range []struct {
		name   string
		clock  float64
		load   time.Duration
		memory int64
		idle   []time.Duration
		want   float64
	}{
		{"once", 0, 8 * time.Second, 1 << 30, []time.Duration{1}, 80},
		{"twice", 0, 8 * time.Second, 1 << 30, []time.Duration{1, 2}, 160},
		{"cheap", 0, time.Second, 1 << 30, []time.Duration{1}, 10},
		{"later", 80, time.Second, 1 << 30, []time.Duration{1}, 90},
		{"large", 0, 8 * time.Second, 5 << 30, []time.Duration{1}, 16},
		{"unknown", 7, 0, 5 << 30, []time.Duration{1}, 7},
		{"by CPU", 0, time.Second, 1 << 20, []time.Duration{1}, 100},
	} {
		if e.clock = c.clock; math.Abs(value(c.name, c.load, c.memory, c.idle...)-c.want) > 1e-6 {
			t.Errorf("%s is worth %v, want %v", c.name, value(c.name, c.load, c.memory, c.idle...), c.want)
		}
	}
}

// An idle instance lives for twice as long as it took to load.
func TestLeastLifetime(t *testing.T) {
	now, loads := epoch.Add(time.Hour), DefaultSettings().EvictLoads
	for _, c := range []struct {
		load, idle time.Duration
		lives      bool
	}{{2 * time.Second, 3900 * ms, true}, {2 * time.Second, 4 * time.Second, false}, {0, 0, false}} {
		in := Running{Loading: c.load, IdleSince: now.Add(-c.idle)}
		if got := in.lives(now, loads); got != c.lives {
			t.Errorf("%+v: lives %v", c, got)
		}
	}
}

// A function that waits lets others' instances live for as long as it can then load in time.
func TestPatient(t *testing.T) {
	const coldWait = 30 * time.Second
	for _, c := range []struct {
		load, waits, coldWait time.Duration
		patient               bool
	}{
		{5 * time.Second, 15 * time.Second, coldWait, true},
		{5 * time.Second, 15100 * ms, coldWait, false},
		{15 * time.Second, 7600 * ms, coldWait, true},
		{15 * time.Second, 7700 * ms, coldWait, false},
		{21 * time.Second, 0, coldWait, false},
		{0, 0, coldWait, false},
		{5 * time.Second, 0, 0, false},
	} {
		now := epoch.Add(time.Hour)
		v := &view{Function: Function{SLO: 200 * ms, ColdWait: c.coldWait, Waiting: 1}, memory: &memory{}}
		v.memory.loading = c.load
		v.memory.note(now.Add(-c.waits), v)
		v.memory.note(now, v)
		if got := v.patient(now); got != c.patient {
			t.Errorf("%+v: patient %v", c, got)
		}
	}
}

// The wait goes on while requests come and go unserved, until one is served or none came for
// long. The time to load is that of the latest instances of the revision.
func TestPatienceRemembers(t *testing.T) {
	now := epoch
	v := &view{Function: Function{Revision: 1}, memory: &memory{}}
	m := &v.memory.patience
	note := func(after time.Duration, waiting int, live ...Running) time.Duration {
		now = now.Add(after)
		v.Waiting, v.live = waiting, live
		if m.note(now, v); m.unserved.IsZero() {
			return -1
		}
		return now.Sub(m.unserved)
	}
	loaded := func(d time.Duration) Running { return Running{State: cluster.Ready, Loading: d} }
	for i, c := range []struct {
		after   time.Duration
		waiting int
		live    []Running
		waited  time.Duration
	}{
		{0, 0, nil, -1},
		{time.Second, 1, nil, 0},
		{time.Second, 0, nil, time.Second},
		{time.Minute, 1, nil, time.Minute + time.Second},
		{time.Second, 1, []Running{{State: cluster.Starting}}, time.Minute + 2*time.Second},
		{time.Second, 1, []Running{loaded(3 * time.Second)}, -1},
		{time.Second, 1, nil, 0},
		{maxPause + 1, 1, nil, 0},
	} {
		if got := note(c.after, c.waiting, c.live...); got != c.waited {
			t.Errorf("look %d: waited %v, want %v", i, got, c.waited)
		}
	}
	if m.loading != 3*time.Second {
		t.Errorf("loads in %v, want the latest instance's 3 s", m.loading)
	}
	if note(0, 0, loaded(2*time.Second)); m.loading != 2*time.Second {
		t.Errorf("loads in %v, want the latest instance's 2 s", m.loading)
	}
	if v.Revision++; note(0, 0) != -1 || m.loading != 0 {
		t.Errorf("another revision loads in %v, want unknown", m.loading)
	}
}

// busyNode has room for one instance. It is f's, which took 10 s to load and is called every
// 3 s. An instance of g was there before and took load.
func busyNode(load time.Duration) *world {
	w := newWorld(DefaultSettings())
	w.nodes = []cluster.Node{{Name: "n", Total: cluster.Resources{CPU: 1000, Memory: 1 << 30}}}
	config := cluster.Config{Batch: 1, Resources: cluster.Resources{CPU: 1000, Memory: 1 << 29}}
	running := func(id cluster.InstanceID, load time.Duration) []Running {
		return []Running{{ID: id, Node: "n", Config: config, Exec: 10 * ms, Revision: 1, State: cluster.Ready, Loading: load}}
	}
	for _, name := range []string{"f", "g"} {
		f := w.function(name)
		f.SLO, f.ColdWait, f.Configs = 200*ms, 30*time.Second, []capacity.Candidate{{Config: config, Exec: 10 * ms}}
	}
	w.function("g").Instances = running("before", load)
	w.scale()
	w.function("g").Instances, w.function("f").Instances = nil, running("f1", 10*time.Second)
	w.coldTime = load
	return w
}

// untilServed returns the time until g has a ready instance, at most a quarter of an hour.
// waits says whether a request of g waits.
func (w *world) untilServed(waits func(after time.Duration) bool) time.Duration {
	f, g := w.function("f"), w.function("g")
	after := time.Duration(0)
	for ; after < 15*time.Minute; after += 100 * ms {
		w.now = w.now.Add(100 * ms)
		w.active["f"], g.Waiting = w.now, 0 // f does not retire.
		if waits(after) {
			g.Waiting = 1
		}
		for i := range f.Instances {
			if f.Instances[i].IdleSince = w.now.Add(-after % (3 * time.Second)); after%(3*time.Second) == 0 {
				f.Instances[i].IdleSince = time.Time{}
			}
		}
		w.scale()
		if len(g.Instances) > 0 && g.Instances[0].State == cluster.Ready {
			break
		}
	}
	return after
}

// A function gets the room of one that is used now and then as late as its own time to load
// allows.
func TestPatienceLeavesTimeToLoad(t *testing.T) {
	for _, load := range []time.Duration{time.Second, 10 * time.Second, 15 * time.Second, 20 * time.Second, 27 * time.Second} {
		w := busyNode(load)
		if got := w.untilServed(func(time.Duration) bool { return true }); got > 30200*ms {
			t.Errorf("%v to load: served after %v, which is more than SLO and cold wait", load, got)
		}
	}
}

// Clients that hang up after 5 s, less than others' instances live, are served in the end.
func TestClientsThatHangUp(t *testing.T) {
	w := busyNode(2 * time.Second)
	got := w.untilServed(func(after time.Duration) bool { return after%(20*time.Second) < 5*time.Second })
	if got > time.Minute {
		t.Errorf("served after %v", got)
	}
}

// Functions that look for room in one plan share the list of those that make room. Each of those
// makes room once.
func TestVictimsMakeRoomOnce(t *testing.T) {
	w := newWorld(DefaultSettings())
	w.now, w.nodes = epoch.Add(time.Minute), []cluster.Node{node("n", 2000, 0, 1<<30)}
	c := config(1, 1000, 0, 10*ms)
	for _, name := range []string{"f1", "f2", "f3", "f4"} {
		f := w.function(name)
		f.SLO, f.Configs, f.Waiting = 100*ms, []capacity.Candidate{c}, 1
	}
	w.functions[0].Waiting, w.active["f1"] = 0, w.now // It does not retire.
	for _, id := range []cluster.InstanceID{"a", "b"} {
		w.functions[0].Instances = append(w.functions[0].Instances, Running{ID: id, Node: "n", Config: c.Config, Exec: c.Exec, Revision: 1, State: cluster.Ready, IdleSince: epoch})
	}
	plan := w.scale()
	if len(plan.Stop) != 2 || len(plan.Start) != 2 || plan.Stop[0].ID == plan.Stop[1].ID {
		t.Errorf("two instances and three that want their room:\n%s", w.print(plan))
	}
}

// Of two idle instances, the one that loads fast makes room, although it was used last.
func TestDearInstanceStays(t *testing.T) {
	config := cluster.Config{Batch: 1, Resources: cluster.Resources{CPU: 1000, Memory: 1 << 29}}
	nodes := []cluster.Node{{Name: "n", Total: cluster.Resources{CPU: 2000, Memory: 1 << 30}}}
	var all []Function
	for i, load := range []time.Duration{8 * time.Second, time.Second} {
		name := string(rune('f' + i))
		all = append(all, Function{Name: name, ScaleToZero: true, SLO: 200 * ms, Configs: []capacity.Candidate{{Config: config, Exec: 10 * ms}},
			Instances: []Running{{ID: cluster.InstanceID(name), Node: "n", Config: config, Exec: 10 * ms, State: cluster.Ready, Loading: load, IdleSince: epoch.Add(time.Duration(i) * time.Second)}}})
	}
	all = append(all, Function{Name: "h", ScaleToZero: true, SLO: 200 * ms, Waiting: 1, Configs: all[0].Configs})
	if plan := New(DefaultSettings()).Scale(epoch.Add(time.Minute), all, nodes); len(plan.Stop) != 1 || plan.Stop[0].ID != "g" {
		t.Errorf("it stops %+v, want g", plan.Stop)
	}
}
