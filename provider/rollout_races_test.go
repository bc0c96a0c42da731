package provider

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/provider/annotation"
)

// TestNameAloneIsNoCandidate: a user's function of an earlier version, or of kubectl, may have a candidate's name.
func TestNameAloneIsNoCandidate(t *testing.T) {
	r := newSides(t, saying("new"))
	d := types.FunctionDeployment{Service: "f--next", Namespace: DefaultNamespace, Image: "old"}
	for _, name := range []string{"f--next", "g--next"} { // g is not there.
		d.Service = name
		in, err := annotation.Parse(d)
		if err != nil {
			t.Fatal(err)
		}
		f, err := r.revise(nil, d, in)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.replaceFunction(context.Background(), nil, f); err != nil {
			t.Fatal(err)
		}
	}
	if all := r.rollouts.all(); len(all) > 0 {
		t.Fatalf("%d rollouts began", len(all))
	}
	got := r.do("POST", "/system/functions", deploymentOf("new", "com.openfaas.infer.canary", "50"))
	if got.Code != http.StatusConflict || !strings.Contains(got.Body.String(), "f--next") {
		t.Errorf("%d %s", got.Code, got.Body)
	}
	if got := r.do("DELETE", "/system/functions", `{"functionName":"f"}`); got.Code != http.StatusAccepted {
		t.Fatalf("%d %s", got.Code, got.Body)
	}
	if kept, _ := r.store.Functions(""); len(kept) != 2 {
		t.Errorf("the store has %v", kept)
	}
}

// acts says, as a look does, that a promotion or a removal begins.
func (r *running) acts() *running {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.acting = true
	return r
}

// TestPromotionComesTooLate: what was deployed, removed or replaced while a promotion waited for the lock stays.
func TestPromotionComesTooLate(t *testing.T) {
	for name, meanwhile := range map[string]func(r *rig) int{
		"a hotfix": func(r *rig) int {
			return r.do("POST", "/system/functions", deploymentOf("hotfix")).Code
		},
		"the candidate is removed": func(r *rig) int {
			return r.do("DELETE", "/system/functions", `{"functionName":"f--next"}`).Code
		},
		"the candidate is replaced": func(r *rig) int {
			return r.do("POST", "/system/functions", deploymentOf("hotfix", "com.openfaas.infer.canary", "50")).Code
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newSides(t, saying("new"))
			r.Server.controller.(sides).answers["hotfix"] = saying("hotfix")
			x := r.begin(t).acts()
			if code := meanwhile(r); code != http.StatusAccepted {
				t.Fatal(code)
			}
			replaced := r.rollouts.ofFunction("f.openfaas-fn")
			if err := r.rollouts.promote(context.Background(), x, "it is good"); err == nil {
				t.Error("it took over")
			}
			if s := r.rolloutStatus(t); s.Image == "new" {
				t.Errorf("%+v", s)
			}
			if now := r.rollouts.ofFunction("f.openfaas-fn"); now == x || replaced != x && now != replaced {
				t.Errorf("the rollout is %v", now)
			}
		})
	}
}

// stuckStore cannot delete functions while it is stuck.
type stuckStore struct {
	Store
	stuck bool
}

func (s *stuckStore) DeleteFunction(namespace, name string) error {
	if s.stuck {
		return errors.New("no space left on device")
	}
	return s.Store.DeleteFunction(namespace, name)
}

// TestRemovalIsTriedAgain: a candidate that could not be removed is removed later, for the first reason.
func TestRemovalIsTriedAgain(t *testing.T) {
	r := newSides(t, saying("new"))
	disk := &stuckStore{r.store, true}
	r.rollouts.store = disk
	x := r.begin(t)
	if got := r.do("POST", "/system/rollout/f", `{"action":"abort"}`); got.Code != 500 || !strings.Contains(got.Body.String(), "no space") {
		t.Fatalf("%d %s", got.Code, got.Body)
	}
	if s := r.rolloutStatus(t); s.Rollout == nil || s.Rollout.Why != "it must be removed, because a user aborted it" {
		t.Fatalf("%+v", s.Rollout)
	}
	if got := r.do("POST", "/system/rollout/f", `{"action":"promote"}`); got.Code != http.StatusConflict {
		t.Errorf("%d %s", got.Code, got.Body)
	}
	disk.stuck = false
	x.again = now // The pause is over.
	if answers := r.look(t, x, 1, 0); len(answers) > 0 || r.rollouts.ofFunction("f.openfaas-fn") != nil {
		t.Fatal("the candidate is still there")
	}
	if s := r.rolloutStatus(t); s.Last == nil || s.Last.Why != "a user aborted it" {
		t.Errorf("%+v", s.Last)
	}
}

// TestUndoAfterAPromotion: the candidate that took over need not be removed yet.
func TestUndoAfterAPromotion(t *testing.T) {
	r := newSides(t, saying("new"))
	x := r.begin(t).acts()
	if got := r.do("POST", "/system/rollout/f", `{"action":"undo"}`); got.Code != http.StatusConflict {
		t.Errorf("%d %s", got.Code, got.Body)
	}
	if _, err := r.rollouts.takeOver(context.Background(), x, "it is good"); err != nil {
		t.Fatal(err)
	}
	if got := r.do("POST", "/system/rollout/f", `{"action":"abort"}`); got.Code != http.StatusConflict || !strings.Contains(got.Body.String(), "undo f") {
		t.Errorf("%d %s", got.Code, got.Body)
	}
	if got := r.do("POST", "/system/rollout/f", `{"action":"undo"}`); got.Code != http.StatusOK {
		t.Fatalf("%d %s", got.Code, got.Body)
	}
	if got := r.do("POST", "/function/f", "x", canaryHeader, "always"); got.Body.String() != "old" {
		t.Errorf("%d %s", got.Code, got.Body)
	}
}

// TestRevisionsEndWithTheFunction: whoever deploys the name next does not get at the revisions of another.
func TestRevisionsEndWithTheFunction(t *testing.T) {
	r := newSides(t, saying("new"))
	deploy := func(image string) {
		t.Helper()
		body := strings.Replace(deploymentOf(image), "{", `{"namespace":"team-a",`, 1)
		if got := r.do("POST", "/system/functions", body); got.Code != http.StatusAccepted {
			t.Fatalf("%d %s", got.Code, got.Body)
		}
	}
	for name, end := range map[string]func() error{
		"the namespace goes": func() error {
			if got := r.do("DELETE", "/system/namespace/team-a", ""); got.Code != http.StatusAccepted {
				t.Fatalf("%d %s", got.Code, got.Body)
			}
			if got := r.do("POST", "/system/namespace/", `{"name":"team-a"}`); got.Code >= 300 {
				t.Fatalf("%d %s", got.Code, got.Body)
			}
			return nil
		},
		"kubectl deletes it": func() error { return r.Forget(context.Background(), "team-a", "f") },
	} {
		deploy("old")
		deploy("new")
		if err := end(); err != nil {
			t.Fatal(err)
		}
		deploy("new")
		if got := r.do("POST", "/system/rollout/f?namespace=team-a", `{"action":"undo"}`); got.Code != http.StatusConflict {
			t.Errorf("%s: %d %s", name, got.Code, got.Body)
		}
		if got := r.do("DELETE", "/system/functions", `{"functionName":"f","namespace":"team-a"}`); got.Code != http.StatusAccepted {
			t.Fatalf("%d %s", got.Code, got.Body)
		}
	}
}
