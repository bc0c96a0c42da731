package scaling

import (
	"fmt"
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

// A function that waits takes the room of one that nobody uses as soon as that has been idle
// for a second, or for twice as long as it took to load.
func TestLeastLifetime(t *testing.T) {
	const coldWait = 30 * time.Second
	for _, c := range []struct {
		load, idle, waits, coldWait, own time.Duration
		lives                            bool
	}{
		{2 * time.Second, 3900 * time.Millisecond, 0, coldWait, 0, true},
		{2 * time.Second, 4 * time.Second, 0, coldWait, 0, false},
		{0, 0, 0, coldWait, 0, false},
		{2 * time.Second, 0, 0, 0, 0, false},
		{10 * time.Second, 14 * time.Second, 15 * time.Second, coldWait, 0, true},
		{10 * time.Second, 14 * time.Second, 15100 * time.Millisecond, coldWait, 0, false},
		// One that takes 20 s to load has 30.2 s - 25 s to wait.
		{10 * time.Second, 14 * time.Second, 5 * time.Second, coldWait, 20 * time.Second, true},
		{10 * time.Second, 14 * time.Second, 5200 * time.Millisecond, coldWait, 20 * time.Second, false},
		{10 * time.Second, 14 * time.Second, 0, coldWait, time.Minute, false},
	} {
		now := epoch.Add(time.Hour)
		v := &view{Function: Function{SLO: 200 * time.Millisecond, ColdWait: c.coldWait, Waiting: 1}, memory: &memory{loading: c.own}}
		v.noteWaiting(now.Add(-c.waits))
		v.noteWaiting(now)
		p := &pass{engine: New(DefaultSettings()), now: now}
		in := Running{Loading: c.load, IdleSince: now.Add(-c.idle)}
		if got := p.lives(in, v); got != c.lives {
			t.Errorf("%+v: lives %v", c, got)
		}
	}
}

// Requests that are refused while others come do not begin to wait anew, and one that comes
// much later does.
func TestWaitingGoesOn(t *testing.T) {
	v := &view{Function: Function{SLO: time.Second, ColdWait: 9 * time.Second}, memory: &memory{}}
	at := func(seconds, waiting int, live ...Running) time.Duration {
		now := epoch.Add(time.Duration(seconds) * time.Second)
		v.Waiting, v.live = waiting, live
		v.noteWaiting(now)
		return v.waited(now)
	}
	serving := Running{State: cluster.Ready, Loading: 3 * time.Second}
	for _, c := range []struct {
		seconds, waiting int
		live             []Running
		want             time.Duration
	}{
		{0, 1, nil, 0}, {4, 0, nil, 4 * time.Second}, {5, 1, nil, 5 * time.Second}, {15, 2, nil, 15 * time.Second},
		{26, 1, nil, 0}, {27, 1, []Running{{State: cluster.Starting}}, time.Second}, {28, 1, []Running{serving}, 0}, {29, 1, nil, 0}, {31, 1, nil, 2 * time.Second},
	} {
		if got := at(c.seconds, c.waiting, c.live...); got != c.want {
			t.Errorf("at %d s: %v, want %v", c.seconds, got, c.want)
		}
	}
	if v.memory.loading != serving.Loading {
		t.Errorf("it is remembered to load in %v", v.memory.loading)
	}
}
