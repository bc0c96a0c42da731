package control

import (
	"errors"
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/async/spare"
	"github.com/faas-infer/faas-infer/variant"
)

// left is what fn leaves.
func (r *rig) left() spare.State {
	r.t.Helper()
	s, ok := Left(r.Controller, full("fn"))
	if !ok {
		r.t.Fatal("fn is not deployed")
	}
	return s
}

func (r *rig) spare(body string) (string, error) {
	got, err := InvokeSpare(r.Controller, full("fn"), &frame.Request{Method: "POST", Path: "/", Header: http.Header{}, Body: []byte(body)})
	if err != nil {
		return "", err
	}
	return string(got.Body), nil
}

// Best-effort requests start no instance, run on one that others have started, and keep none.
func TestSpareStartsAndKeepsNothing(t *testing.T) {
	try(t, func(r *rig) {
		r.measured("fn", "plain", wholeCore)
		for range 20 {
			if _, err := r.spare("x"); !errors.Is(err, spare.ErrOccupied) {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if n := len(r.backend.living()); n > 0 || r.left().Ready != 0 {
			t.Fatalf("%d instances live", n)
		}
		r.answered("fn", "plain")
		began, ran := time.Now(), 0
		for len(r.backend.living()) > 0 {
			if got, err := r.spare("x"); err == nil && got == "plain:x" {
				ran++
			} else if err == nil {
				t.Errorf("it answered %q", got)
			} else if err != nil && !errors.Is(err, spare.ErrOccupied) {
				t.Error(err)
			}
			time.Sleep(100 * time.Millisecond)
			if time.Since(began) > 2*keepAlive {
				t.Fatal("best-effort requests keep the instance")
			}
		}
		if ran < 100 {
			t.Errorf("%d requests ran", ran)
		}
		if s := r.describe("fn"); s.Cold != 1 {
			t.Errorf("%d requests were cold", s.Cold)
		}
	})
	if _, ok := Left(&Controller{}, "absent"); ok {
		t.Error("an absent function leaves something")
	}
	if _, err := InvokeSpare(&Controller{}, "absent", nil); !errors.Is(err, spare.ErrOccupied) {
		t.Error(err)
	}
}

// An overloaded instance, and one that something interferes with, show.
func TestLeftShowsStates(t *testing.T) {
	try(t, func(r *rig) {
		r.backend.take(func(cluster.Config) float64 { return 1 })
		r.measured("fn", "plain", wholeCore)
		r.loaded("fn", 50*time.Millisecond, 60*time.Second, func() {
			time.Sleep(30 * time.Second)
			if s := r.left(); s.Ready != 1 || s.Overloaded+s.Interfered != 0 {
				t.Errorf("%+v", s)
			}
			r.backend.disturb("n1")
			r.within(3*time.Second, "fn", variant.Interfered)
			if s := r.left(); s.Ready != 1 || s.Interfered != 1 {
				t.Errorf("%+v", s)
			}
			r.backend.disturb("")
		})
	})
}

// The share of a node counts what is used, and what ordinary functions hold if nothing else is
// known. An instance without a reading counts with what it holds.
func TestUsedShares(t *testing.T) {
	try(t, func(r *rig) {
		r.measured("fn", "plain", wholeCore)
		r.answered("fn", "plain")
		share := func(usage cluster.Resources, others int, cpu func(string) (float64, bool)) float64 {
			r.mu.Lock()
			defer r.mu.Unlock()
			for _, in := range r.functions[full("fn")].Instances {
				in.Usage = usage
			}
			r.nodes = []cluster.Node{{Name: "n1", Total: cluster.Resources{CPU: 4000}, Others: cluster.Resources{CPU: others}}}
			r.shares = shares{keeper: r.keeper, cpu: cpu}
			return r.shares.of(time.Now(), "n1", r.nodes)
		}
		reading := cluster.Resources{CPU: 600, Memory: 1}
		for name, test := range map[string]struct{ got, want float64 }{
			"a reading":               {share(reading, 1000, nil), 0.4},
			"no reading":              {share(cluster.Resources{}, 0, nil), 0.25},
			"a measured machine":      {share(reading, 1000, func(string) (float64, bool) { return 0.5, true }), 0.5},
			"a machine at rest":       {share(reading, 1000, func(string) (float64, bool) { return 0, true }), 0.15},
			"a machine not yet known": {share(reading, 0, func(string) (float64, bool) { return 0, false }), math.Inf(1)},
		} {
			if test.got != test.want {
				t.Errorf("%s: %v, want %v", name, test.got, test.want)
			}
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if s := r.shares.of(time.Now(), "other", r.nodes); !math.IsInf(s, 1) {
			t.Errorf("an unknown node: %v", s)
		}
		for _, in := range r.functions[full("fn")].Instances {
			in.Usage, in.Nodes = reading, []string{"n1", "n2"} // A set uses half of it on each node.
		}
		r.shares = shares{keeper: r.keeper}
		if s := r.shares.of(time.Now(), "n1", r.nodes); s != 0.075 {
			t.Errorf("a set on two nodes: %v", s)
		}
	})
}
