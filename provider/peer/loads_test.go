package peer

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/web"
)

func ran(n int) (out []Executed) {
	for i := range n {
		out = append(out, Executed{Function: name, Instance: "i", Size: i + 1, Exec: time.Millisecond})
	}
	return out
}

func TestLoadsAreKnownToAll(t *testing.T) {
	_, all := several(t, 3)
	all[1].worker.locked(func() {
		all[1].worker.load = Load{Functions: map[string]FunctionLoad{name: {Arrivals: 7, Waiting: 2, Idle: map[cluster.InstanceID]int64{"i": Busy}}},
			Executed: ran(3), Next: 3, Lost: map[cluster.InstanceID]string{"j": "hung"}}
	})
	var executed []Executed
	var heard Load
	until(t, "told", func() bool {
		for _, l := range all[0].Loads() {
			if f, ok := l.Functions[name]; ok && f.Arrivals == 7 {
				heard = l
				executed = append(executed, l.Executed...)
			}
		}
		return len(executed) >= 3
	})
	if f := heard.Functions[name]; f.Waiting != 2 || f.Idle["i"] != Busy || heard.Lost["j"] != "hung" || heard.Boot != all[1].boot || time.Since(heard.At) > time.Minute {
		t.Errorf("heard %+v", heard)
	}
	all[1].worker.locked(func() { all[1].worker.load.Executed, all[1].worker.load.Next = ran(5), 5 })
	until(t, "told of the rest", func() bool {
		for _, l := range all[0].Loads() {
			executed = append(executed, l.Executed...)
		}
		return len(executed) >= 5
	})
	if !slices.Equal(executed, ran(5)) {
		t.Errorf("executed %v, want each once", executed)
	}
	until(t, "told by the two others", func() bool {
		all[0].Listener().Loads()
		return len(all[0].Loads()) == 2
	})
}

// processes is a controller of ordinary functions.
type processes struct{ woken chan struct{} }

func (processes) Loads() map[string]FunctionLoad {
	return map[string]FunctionLoad{"g.openfaas-fn": {Arrivals: 3, InFlight: 1}}
}

func (p processes) Wake() {
	select {
	case p.woken <- struct{}{}:
	default:
	}
}

func TestOrdinaryFunctionsAreTold(t *testing.T) {
	_, all := several(t, 2)
	p := processes{make(chan struct{}, 1)}
	all[0].AttachOrdinary(p)
	all[1].AttachOrdinary(p)
	until(t, "told", func() bool {
		loads := all[0].Listener().Loads()
		return len(loads) == 1 && loads[0].Functions["g.openfaas-fn"].InFlight == 1
	})
	all[1].Wake()
	<-p.woken
}

func TestAReplicaThatIsGoneIsForgotten(t *testing.T) {
	where, all := several(t, 2)
	until(t, "heard", func() bool { return len(all[0].Loads()) == 1 })
	where.set(where.members()[:1]...)
	until(t, "forgotten", func() bool { return len(all[0].Loads()) == 0 })
}

func TestWakeTellsTheLeaderTheLoad(t *testing.T) {
	_, all := several(t, 2)
	all[1].worker.locked(func() {
		all[1].worker.load = Load{Functions: map[string]FunctionLoad{name: {Arrivals: 1, Cold: 1, Waiting: 1}}}
	})
	all[1].Wake()
	until(t, "woken", func() bool {
		n := 0
		all[0].worker.locked(func() { n = all[0].worker.wakes })
		return n > 0
	})
	if l := all[0].Loads(); len(l) != 1 || l[0].Functions[name].Waiting != 1 {
		t.Errorf("the leader was woken and knows %+v", l)
	}
}

func TestDrain(t *testing.T) {
	_, all := several(t, 2)
	done := make(chan struct{})
	go func() {
		defer close(done)
		all[0].Drain(t.Context(), "i")
	}()
	until(t, "asked", func() bool {
		n := 0
		all[1].worker.locked(func() { n = len(all[1].worker.drained) })
		return n == 1
	})
	select {
	case <-done:
		t.Error("it returned before nothing was in flight")
	default:
	}
	close(all[1].worker.hold)
	<-done
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	all[0].Drain(ctx, "j") // Returns.
}

func TestParkAndServe(t *testing.T) {
	where, all := several(t, 3)
	if !all[0].Park(t.Context(), "i") {
		t.Error("nobody needs the instance, and it may not be parked")
	}
	config := cluster.Config{Batch: 4, Resources: cluster.Resources{CPU: 500}}
	all[0].Serve("i", config)
	until(t, "told", func() bool {
		var got cluster.Config
		all[2].worker.locked(func() { got = all[2].worker.serves["i"] })
		return got == config
	})
	all[1].worker.locked(func() { all[1].worker.busy = true })
	if all[0].Park(t.Context(), "k") {
		t.Error("one needs the instance, and it is parked")
	}
	all[2].worker.locked(func() {
		if got, ok := all[2].worker.serves["k"]; !ok || got != (cluster.Config{}) {
			t.Errorf("the other one, which does not need it, was told %v, %v; want to use it as before", got, ok)
		}
	})
	where.set(append(slices.Clone(where.members()), Member{ID: "gone", URL: "http://127.0.0.1:1"})...)
	if all[0].Park(t.Context(), "l") {
		t.Error("one cannot be asked, and it is parked")
	}
}

// A replica that stops gets no requests, but is asked before its instances are parked or stopped,
// and its requests in flight count.
func TestALeavingReplicaIsAsked(t *testing.T) {
	where, all := several(t, 3)
	where.leave()
	leaving := all[2]
	leaving.worker.locked(func() {
		leaving.worker.load = Load{Functions: map[string]FunctionLoad{name: {Arrivals: 1, Waiting: 1}}}
		leaving.worker.busy = true
	})
	until(t, "its load is known", func() bool {
		return slices.ContainsFunc(all[0].Loads(), func(l Load) bool { return l.Functions[name].Waiting == 1 })
	})
	if all[0].Park(t.Context(), "i") {
		t.Error("the leaving replica needs the instance, and it is parked")
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		all[0].Drain(t.Context(), "j")
	}()
	close(all[1].worker.hold)
	until(t, "asked", func() (asked bool) {
		leaving.worker.locked(func() { asked = slices.Contains(leaving.worker.drained, "j") })
		return asked
	})
	select {
	case <-drained:
		t.Error("it returned before the leaving replica had finished")
	default:
	}
	close(leaving.worker.hold)
	<-drained
	for range 20 {
		if _, err := all[0].ask(t.Context(), 0); err != nil {
			t.Error(err)
		}
	}
	if n := leaving.own.requests.Load(); n != 0 {
		t.Errorf("the leaving replica was handed %d requests", n)
	}
	// Its process has ended, and the cluster does not know it yet.
	leaving.server.CloseClientConnections()
	leaving.server.Close()
	if !all[0].Park(t.Context(), "k") {
		t.Error("the replica that has ended stops parking")
	}
	if !all[0].Park(t.Context(), "l") {
		t.Error("the replica that has ended stops parking later")
	}
}

func TestRoutesWantCredentials(t *testing.T) {
	_, all := several(t, 1)
	for path, method := range map[string]string{loadsPath + "?since=0": "GET", wakePath: "POST", drainPath + "?instance=i": "POST", parkPath + "?instance=i": "POST", servePath: "POST", invokePath + name: "POST"} {
		w := httptest.NewRecorder()
		all[0].Handler().ServeHTTP(w, httptest.NewRequest(method, path, nil))
		if w.Code != http.StatusUnauthorized {
			t.Errorf("%s %s without credentials: %d, want 401", method, path, w.Code)
		}
	}
}

func TestNonsenseIsRefused(t *testing.T) {
	_, all := several(t, 1)
	for path, method := range map[string]string{loadsPath: "GET", loadsPath + "?since=x": "GET", wakePath: "POST", drainPath: "POST", parkPath: "POST", servePath: "POST", invokePath + name: "POST"} {
		w, r := httptest.NewRecorder(), httptest.NewRequest(method, path, nil)
		r.SetBasicAuth("admin", "secret")
		all[0].Handler().ServeHTTP(w, r)
		if w.Code != http.StatusBadRequest || w.Body.Len() == 0 {
			t.Errorf("%s %s: %d %q, want 400 and why", method, path, w.Code, w.Body)
		}
		r.Header.Set(web.FunctionStatusHeader, "200")
		w = httptest.NewRecorder()
		if all[0].Handler().ServeHTTP(w, r); w.Code != http.StatusForbidden {
			t.Errorf("%s %s by a callback: %d, want 403", method, path, w.Code)
		}
	}
}
