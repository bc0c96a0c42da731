package control

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/backoff"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider"
)

// generator makes a fast variant of the model of each image, which takes ten minutes. Calls at the
// same time share the work.
type generator struct {
	mu    sync.Mutex
	made  bool
	runs  int
	fails error
	// calls is the number of calls that wait. The work for an image began with the first of them.
	calls int
	image string
	began time.Time
}

func (g *generator) Models(_ context.Context, f *provider.Function) (string, []Model, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	models := []Model{{Name: "precise", Of: "precise", File: "precise", Accuracy: 80}}
	if g.made && g.Wanted(f, "") != "" {
		models[0].Accuracy = 80.5 // It is measured with them.
		models = append(models, Model{Name: "slim", Of: "precise", File: "slim", Accuracy: 79})
	}
	return "bundles/" + f.Deployment.Image, models, nil
}

func (g *generator) Wanted(f *provider.Function, bundle string) string {
	if f.Inference.Stated.Value(moreKey) == "" {
		return ""
	}
	return "variants of " + bundle
}

func (g *generator) Improve(ctx context.Context, f *provider.Function) error {
	g.mu.Lock()
	g.runs++
	made, fails := g.made, g.fails
	if !made && (g.calls == 0 || g.image != f.Deployment.Image) {
		g.image, g.began = f.Deployment.Image, time.Now()
	}
	g.calls++
	rest := time.Until(g.began.Add(10 * time.Minute))
	g.mu.Unlock()
	done := made || backoff.Wait(ctx, rest)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls--
	switch {
	case made:
		return nil
	case !done:
		return ctx.Err()
	}
	g.made = fails == nil
	return fails
}

func (g *generator) set(fails error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fails = fails
}

// moreKey says in tests that a generator makes variants.
const moreKey = "more"

func generates(f *provider.Function) { f.Inference.Stated = f.Inference.Stated.With(moreKey, "yes") }

func tryGenerator(t *testing.T, f func(r *rig, g *generator)) {
	t.Helper()
	g := &generator{}
	tryWith(t, func(o *Options) { o.Bundles, o.Improver = g, g }, func(r *rig) {
		r.backend.widen(8000)
		f(r, g)
	})
}

// titles lists the function's variants.
func (r *rig) titles(name string) string {
	var names []string
	all, _ := r.Variants(full(name))
	for _, v := range all {
		names = append(names, v.Name+" of "+v.Model)
	}
	return strings.Join(names, ", ")
}

// The model serves while variants of it are made. Then they serve, too, and no instance was
// restarted.
func TestVariantsAreGenerated(t *testing.T) {
	tryGenerator(t, func(r *rig, g *generator) {
		r.measured("fn", "net", generates)
		r.answered("fn", "precise")
		before := r.only()
		failed := make(chan int)
		go func() { failed <- r.load("fn", 5*time.Millisecond, 12*time.Minute) }()
		time.Sleep(9 * time.Minute)
		if got := r.titles("fn"); got != "precise of precise" {
			t.Errorf("before they are made: %s", got)
		}
		time.Sleep(90 * time.Second)
		if got := r.titles("fn"); got != "precise of precise, slim of precise" {
			t.Errorf("afterwards: %s", got)
		}
		if all, _ := r.Variants(full("fn")); len(all) != 2 || all[0].Accuracy != 80.5 {
			t.Errorf("%+v", all)
		}
		if !r.lives(before.ID) {
			t.Error("the instance was restarted")
		}
		if n := <-failed; n > 0 {
			t.Errorf("%d requests failed", n)
		}
		if d := r.describe("fn"); d.Problem != "" {
			t.Errorf("problem: %s", d.Problem)
		}
		if n := r.load("fn", time.Millisecond, 3*time.Minute); n > 0 {
			t.Errorf("%d requests failed under load", n)
		}
		if !slices.ContainsFunc(r.backend.living(), func(in cluster.Instance) bool { return in.Artefact.Name == "slim" }) {
			t.Error("no instance has loaded the new variant")
		}
		// A deployment that changes nothing makes and restarts nothing.
		asked := r.backend.asked()
		r.deploy("fn", "net", generates)
		time.Sleep(time.Minute)
		if r.backend.asked() > asked+1 || r.titles("fn") != "precise of precise, slim of precise" {
			t.Errorf("%d instances started, variants %s", r.backend.asked()-asked, r.titles("fn"))
		}
	})
}

// A deployment that changes something else does not make the work begin again. One without auto, one
// of another image and a removal end it.
func TestGenerationOutlivesAnUpdate(t *testing.T) {
	tryGenerator(t, func(r *rig, g *generator) {
		calls := func() int {
			g.mu.Lock()
			defer g.mu.Unlock()
			return g.calls
		}
		r.measured("fn", "net", generates)
		for range 3 {
			time.Sleep(3 * time.Minute)
			r.deploy("fn", "net", generates, func(f *provider.Function) { f.Deployment.EnvVars = map[string]string{"at": time.Now().String()} })
		}
		time.Sleep(70 * time.Second)
		if got := r.titles("fn"); got != "precise of precise, slim of precise" || calls() > 0 {
			t.Errorf("ten minutes after the first deployment: %s, %d calls", got, calls())
		}
		for name, change := range map[string]func(){
			"without auto":  func() { r.deploy("fn", "net") },
			"another image": func() { r.deploy("fn", "other", generates) },
			"removed": func() {
				if err := r.Remove(t.Context(), full("fn")); err != nil {
					t.Error(err)
				}
			},
		} {
			g.mu.Lock()
			g.made = false
			g.mu.Unlock()
			r.measured("fn", "net", generates)
			r.until("it begins", func() bool { return calls() == 1 })
			time.Sleep(time.Second)
			changed := time.Now()
			change()
			time.Sleep(time.Second)
			g.mu.Lock()
			anew := !g.began.Before(changed)
			g.mu.Unlock()
			if want := name == "another image"; anew != want || calls() != map[bool]int{true: 1}[want] {
				t.Errorf("%s: began again: %v, %d calls", name, anew, calls())
			}
			if name != "removed" {
				r.deploy("fn", "net") // It ends that of the other image.
				time.Sleep(time.Second)
			}
		}
	})
}

// If that fails, the description says why, the model serves on, and a later attempt follows. A
// deployment without auto ends it.
func TestGenerationFails(t *testing.T) {
	tryGenerator(t, func(r *rig, g *generator) {
		g.set(errors.New("the quantizer was killed"))
		r.measured("fn", "net", generates)
		time.Sleep(10*time.Minute + 10*time.Second)
		if d := r.describe("fn"); !strings.Contains(d.Problem, "no variants of them could be made: the quantizer was killed") {
			t.Errorf("problem %q", d.Problem)
		}
		r.answered("fn", "precise")
		g.set(nil)
		time.Sleep(12 * time.Minute)
		if d := r.describe("fn"); d.Problem != "" || r.titles("fn") != "precise of precise, slim of precise" {
			t.Errorf("problem %q, variants %s", d.Problem, r.titles("fn"))
		}
		g.mu.Lock()
		g.made, g.fails = false, errors.New("again")
		runs := g.runs
		g.mu.Unlock()
		r.deploy("fn", "net")
		time.Sleep(30 * time.Minute)
		g.mu.Lock()
		more := g.runs - runs
		g.mu.Unlock()
		if more != 0 || r.titles("fn") != "precise of precise" {
			t.Errorf("%d attempts without auto, variants %s", more, r.titles("fn"))
		}
	})
}

// A provider that starts after one that was killed halfway tries again, and one that finds the
// variants serves them at once.
func TestGenerationAfterARestart(t *testing.T) {
	tryGenerator(t, func(r *rig, g *generator) {
		r.measured("fn", "net", generates)
		time.Sleep(5 * time.Minute)
		restart := func() {
			r.end()
			r.open()
			r.Restoring(func(string) bool { return true })
			r.run()
			r.revision = 0
			r.deploy("fn", "net", generates)
		}
		restart()
		time.Sleep(11 * time.Minute)
		if got := r.titles("fn"); got != "precise of precise, slim of precise" {
			t.Errorf("after a restart halfway: %s", got)
		}
		r.answered("fn", "precise")
		before := r.only()
		restart()
		r.until("both are known", func() bool { return r.titles("fn") == "precise of precise, slim of precise" })
		if !r.lives(before.ID) {
			t.Error("the instance was not taken over")
		}
	})
}
