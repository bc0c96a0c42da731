package failures

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/faas-infer/faas-infer/e2e/kubernetes/disturb"
	"github.com/faas-infer/faas-infer/e2e/kubernetes/testprovider"
)

// play runs a fixed sequence of events: instances are requested and given up, others delete
// pods, requests come. It returns the final state.
func play(t *testing.T, config *rest.Config) string {
	t.Helper()
	nodes(t, 3, "4")
	r := open(t, config, nil)
	defer end(t, r)
	converges(t, r, map[string]int{"a": 2, "b": 3})
	l := begin(t, 50*time.Millisecond, []string{"a", "c"}, r)
	scale(t, r, "a", 5)
	killed := of(t, "b")[:1]
	lose(t, r, killed, func() { forceDelete(t, killed[0]) })
	scale(t, r, "b", 4)
	converges(t, r, map[string]int{"a": 5, "b": 4, "c": 1})
	for _, p := range of(t, "a")[:2] {
		l.catchUp()
		lose(t, r, []*corev1.Pod{p}, func() { forceDelete(t, p) })
	}
	scale(t, r, "b", 1)
	l.end()
	converges(t, r, map[string]int{"a": 5, "b": 1, "c": 1})
	return state(t, r)
}

func scale(t *testing.T, r *testprovider.Rig, name string, n int) {
	t.Helper()
	if err := r.Scale(name, n); err != nil {
		t.Fatal(err)
	}
}

// Clients of the API server get events late, twice or never, and writes are refused or done
// without an answer. The final state is still that of an undisturbed run, and no request is
// lost.
func TestDisturbedRunsEndAlike(t *testing.T) {
	t.Parallel() // Beside tests that are apart.
	var want string
	t.Run("undisturbed", func(t *testing.T) { want = play(t, shared.Config()) })
	if want == "" {
		t.Fatal("there is nothing to compare with")
	}
	plans := map[string]disturb.Plan{
		"late and twice": {Watch: disturb.Watch{Delay: 0.3, Latest: 300 * time.Millisecond, Duplicate: 0.3}},
		"dropped":        {Watch: disturb.Watch{Drop: 0.1, Unseen: 500 * time.Millisecond}},
		"cut":            {Watch: disturb.Watch{Cut: 0.1, Expire: 0.1}},
		"writes":         {Write: disturb.Write{Refuse: 0.2, Lose: 0.2}},
		"all": {Watch: disturb.Watch{Delay: 0.2, Latest: 200 * time.Millisecond, Duplicate: 0.2, Drop: 0.05, Unseen: 300 * time.Millisecond, Cut: 0.05, Expire: 0.05},
			List: disturb.List{Stale: 1, Age: 2 * time.Second}, Write: disturb.Write{Refuse: 0.1, Lose: 0.1}},
	}
	for name, plan := range plans {
		for seed := range uint64(seeds()) {
			plan.Seed = seed
			plan.Only = func(path string) bool { return !strings.Contains(path, "/leases") }
			t.Run(fmt.Sprintf("%s %d", strings.ReplaceAll(name, " ", "-"), seed), func(t *testing.T) {
				apart(t)
				p := proxy(t, plan)
				got := play(t, p.Config())
				t.Logf("disturbed: %+v", p.Counts())
				if got != want {
					t.Errorf("seed %d ends in\n%s\nundisturbed it is\n%s", seed, got, want)
				}
			})
		}
	}
}

// seeds returns the number of runs of each plan.
func seeds() int {
	if testing.Short() {
		return 1
	}
	return 2
}

func proxy(t *testing.T, plan disturb.Plan) *disturb.Proxy {
	t.Helper()
	p, err := disturb.Start(shared.Config(), plan)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// Hanging watches stay open without events. Requests are still served. Once the watches
// continue or break, the provider catches up with all missed events.
func TestWatchesThatHang(t *testing.T) {
	apart(t)
	nodes(t, 3, "4")
	p := proxy(t, disturb.Plan{})
	r := open(t, p.Config(), nil)
	defer end(t, r)
	converges(t, r, map[string]int{"a": 2, "b": 3})
	for name, how := range map[string]func(){"go on": func() {}, "break off": func() { p.Cut() }, "end": func() { p.Expire() }} {
		l := begin(t, 20*time.Millisecond, []string{"a", "b"}, r)
		p.Freeze()
		killed := of(t, "b")[:1]
		where(t).instances.Lose(address(killed[0]))
		forceDelete(t, killed[0])
		sent := l.sent.Load()
		eventually(t, "requests go on", func() string {
			if l.sent.Load() < sent+100 {
				return "waiting"
			}
			return ""
		})
		lose(t, r, killed, func() {
			how()
			p.Thaw()
		})
		l.end()
		converges(t, r, map[string]int{"a": 2, "b": 3})
		t.Logf("watches that %s: done", name)
	}
}
