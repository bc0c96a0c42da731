package provider

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/decisions"
	"github.com/faas-infer/faas-infer/provider/rollout"
	"github.com/faas-infer/faas-infer/provider/web"
)

// sides is a controller whose functions answer by their image.
type sides struct {
	*fakeController
	answers map[string]dispatcherFunc
}

func (c sides) Deploy(ctx context.Context, f *Function) (Dispatcher, error) {
	if _, err := c.fakeController.Deploy(ctx, f); err != nil {
		return nil, err
	}
	return c.answers[f.Deployment.Image], nil
}

func saying(text string) dispatcherFunc {
	return func(context.Context, *frame.Request) (*frame.Response, error) {
		return &frame.Response{Status: 200, Header: http.Header{"Content-Type": {"text/plain"}}, Body: []byte(text)}, nil
	}
}

// deployment is a model's deployment with an image and further annotations, as JSON.
func deploymentOf(image string, more ...string) string {
	all := map[string]string{"com.openfaas.slo.latency": "50ms"}
	for i := 0; i < len(more); i += 2 {
		all[more[i]] = more[i+1]
	}
	text, _ := json.Marshal(map[string]any{"service": "f", "image": image, "annotations": all})
	return string(text)
}

// newSides returns a rig with function f of image old.
func newSides(t *testing.T, next dispatcherFunc) *rig {
	r := newRig(t, func(o *Options) {
		o.Decisions = decisions.NewLog()
		o.Controller = sides{o.Controller.(*fakeController), map[string]dispatcherFunc{"old": saying("old"), "new": next}}
	})
	if got := r.do("POST", "/system/functions", deploymentOf("old")); got.Code != http.StatusAccepted {
		t.Fatalf("%d %s", got.Code, got.Body)
	}
	return r
}

func (r *rig) begin(t *testing.T, more ...string) *running {
	t.Helper()
	if got := r.do("POST", "/system/functions", deploymentOf("new", append([]string{"com.openfaas.infer.canary", "50"}, more...)...)); got.Code != http.StatusAccepted {
		t.Fatalf("%d %s", got.Code, got.Body)
	}
	x := r.rollouts.ofFunction("f.openfaas-fn")
	if x == nil {
		t.Fatal("no rollout began")
	}
	return x
}

// look lets the server look at a rollout after some requests, until it ends or rounds have passed. It returns the answers.
func (r *rig) look(t *testing.T, x *running, rounds, requests int) map[string]int {
	t.Helper()
	answers, at := map[string]int{}, time.Now()
	for range rounds {
		var work sync.WaitGroup
		r.rollouts.look(context.Background(), x, at, &work)
		work.Wait()
		if r.rollouts.ofFunction("f.openfaas-fn") != x {
			break
		}
		for range requests {
			got := r.do("POST", "/function/f", "x")
			answers[strings.TrimSpace(got.Body.String())]++
			if got.Code != http.StatusOK {
				t.Fatalf("%d %s", got.Code, got.Body)
			}
		}
		for x.split.copies.Load() > 0 {
			time.Sleep(time.Millisecond)
		}
		at = at.Add(time.Second)
	}
	return answers
}

func (r *rig) rolloutStatus(t *testing.T) (s RolloutStatus) {
	t.Helper()
	got := r.do("GET", "/system/rollout/f", "")
	if err := json.Unmarshal(got.Body.Bytes(), &s); err != nil {
		t.Fatalf("%d %s: %v", got.Code, got.Body, err)
	}
	return s
}

func TestPromotes(t *testing.T) {
	r := newSides(t, saying("new"))
	x := r.begin(t)
	answers := r.look(t, x, 100, 100)
	s := r.rolloutStatus(t)
	if s.Rollout != nil || s.Image != "new" || s.Last == nil || !s.Last.Promoted || len(s.History) != 2 {
		t.Fatalf("%+v, last %+v", s, s.Last)
	}
	if answers["old"] == 0 || answers["new"] == 0 {
		t.Fatalf("answers: %v", answers)
	}
	if got := r.do("POST", "/function/f", "x"); got.Body.String() != "new" {
		t.Fatalf("%d %s", got.Code, got.Body)
	}
	if _, err := r.find(address{"f--next", DefaultNamespace}); err == nil {
		t.Error("the candidate is still there")
	}
	// Back, and forth again.
	for _, want := range []string{"old", "new"} {
		if got := r.do("POST", "/system/rollout/f", `{"action":"undo"}`); got.Code != http.StatusOK {
			t.Fatalf("%d %s", got.Code, got.Body)
		}
		if got := r.do("POST", "/function/f", "x"); got.Body.String() != want {
			t.Fatalf("%d %s, want %s", got.Code, got.Body, want)
		}
	}
}

// A rollout shows in the function's status and in metrics, which say how it ended.
func TestRolloutIsShown(t *testing.T) {
	for _, c := range []struct{ answer, outcome string }{{"new", promotedOutcome}, {"", string(rollout.Failures)}} {
		r := newSides(t, func(ctx context.Context, req *frame.Request) (*frame.Response, error) {
			if c.answer == "" {
				return nil, web.Refuse(http.StatusBadGateway, "it died")
			}
			return saying(c.answer)(ctx, req)
		})
		x := r.begin(t)
		x.showShare(&r.rollouts)
		const share = `faas_infer_candidate_share_ratio{function="f.openfaas-fn"} `
		if text := r.do("GET", "/metrics", "").Body.String(); !strings.Contains(text, share+"0") {
			t.Errorf("no share of the candidate:\n%s", text)
		}
		for _, path := range []string{"/system/functions", "/system/function/f"} {
			text := r.do("GET", path, "").Body.String()
			if !strings.Contains(text, `"com.openfaas.infer.rollout":"revision 2 is starting and gets 0 % of the requests"`) {
				t.Errorf("%s does not show the rollout: %s", path, text)
			}
		}
		r.look(t, x, 100, 100)
		x.showShare(&r.rollouts)
		text := r.do("GET", "/metrics", "").Body.String()
		want := fmt.Sprintf("faas_infer_rollouts_total{function=%q,outcome=%q} 1\n", "f.openfaas-fn", c.outcome)
		if !strings.Contains(text, want) || strings.Contains(text, share) {
			t.Errorf("after the end there is no %sin\n%s", want, text)
		}
		r.do("DELETE", "/system/functions", `{"functionName":"f"}`)
		if text := r.do("GET", "/metrics", "").Body.String(); strings.Contains(text, "faas_infer_rollouts_total{") {
			t.Errorf("a function that is gone has metrics:\n%s", text)
		}
	}
}

func TestRollsBack(t *testing.T) {
	for name, next := range map[string]dispatcherFunc{
		"fails": func(context.Context, *frame.Request) (*frame.Response, error) {
			return nil, web.Refuse(http.StatusBadGateway, "it died")
		},
		"answers errors": func(context.Context, *frame.Request) (*frame.Response, error) {
			return &frame.Response{Status: 500, Body: []byte("no")}, nil
		},
		"is late": func(context.Context, *frame.Request) (*frame.Response, error) {
			return &frame.Response{Status: 200, Body: []byte("late"), Late: true}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newSides(t, next)
			answers := r.look(t, r.begin(t), 60, 50)
			s := r.rolloutStatus(t)
			if s.Rollout != nil || s.Image != "old" || s.Last == nil || s.Last.Promoted || s.Last.Why == "" {
				t.Fatalf("%+v, last %+v", s, s.Last)
			}
			if len(answers) != 1 {
				t.Errorf("clients got %v", answers)
			}
			if got := r.do("GET", "/system/events?function=f", ""); !strings.Contains(got.Body.String(), "rolled back revision 2") {
				t.Errorf("%s", got.Body)
			}
		})
	}
}

// TestFailsLater: what a candidate that has its share fails to answer, the present revision answers.
func TestFailsLater(t *testing.T) {
	var dead atomic.Bool
	r := newSides(t, func(ctx context.Context, req *frame.Request) (*frame.Response, error) {
		if dead.Load() {
			return nil, web.Refuse(http.StatusBadGateway, "it died")
		}
		return saying("new")(ctx, req)
	})
	x := r.begin(t)
	if answers := r.look(t, x, 30, 10); answers["new"] == 0 {
		t.Fatalf("answers: %v", answers)
	}
	dead.Store(true)
	if answers := r.look(t, x, 60, 50); answers["new"] > 0 || r.rolloutStatus(t).Last.Promoted {
		t.Fatalf("answers: %v", answers)
	}
}

func TestMirrorFindsOtherAnswers(t *testing.T) {
	r := newSides(t, saying("new"))
	answers := r.look(t, r.begin(t, "com.openfaas.infer.canary-mirror", "100"), 60, 50)
	s := r.rolloutStatus(t)
	if s.Last == nil || s.Last.Promoted || !strings.Contains(s.Last.Why, "differ") || answers["new"] > 0 {
		t.Fatalf("last %+v, answers %v", s.Last, answers)
	}
}

func TestRolloutByUser(t *testing.T) {
	r := newSides(t, saying("new"))
	for action, want := range map[string]int{"promote": 409, "abort": 409, "undo": 409, "go": 400} {
		if got := r.do("POST", "/system/rollout/f", `{"action":"`+action+`"}`); got.Code != want {
			t.Errorf("%s: %d %s", action, got.Code, got.Body)
		}
	}
	x := r.begin(t, "com.openfaas.infer.canary", "header")
	r.look(t, x, 40, 1)
	if x.state.Phase != rollout.Sharing {
		t.Fatalf("the phase is %s: %s", x.state.Phase, x.why)
	}
	for header, want := range map[string]string{"always": "new", "never": "old", "": "old"} {
		if got := r.do("POST", "/function/f", "x", canaryHeader, header); got.Body.String() != want {
			t.Errorf("%q: %d %s", header, got.Code, got.Body)
		}
	}
	// The same again changes nothing, and a plain deployment ends the rollout.
	if r.begin(t, "com.openfaas.infer.canary", "header") != x {
		t.Error("the same deployment began another rollout")
	}
	if got := r.do("POST", "/system/rollout/f", `{"action":"abort"}`); got.Code != 200 {
		t.Fatalf("%d %s", got.Code, got.Body)
	}
	if s := r.rolloutStatus(t); s.Image != "old" || s.Last.Promoted {
		t.Fatalf("%+v", s)
	}
	x = r.begin(t)
	r.look(t, x, 1, 0)
	if got := r.do("POST", "/system/rollout/f", `{"action":"promote"}`); got.Code != 200 {
		t.Fatalf("%d %s", got.Code, got.Body)
	}
	if s := r.rolloutStatus(t); s.Image != "new" || !s.Last.Promoted {
		t.Fatalf("%+v", s)
	}
}

func TestReservedNames(t *testing.T) {
	r := newSides(t, saying("new"))
	for wrong, body := range map[string]string{
		"candidates":       `{"service":"f--next","image":"old"}`,
		"at most 57":       `{"service":"` + strings.Repeat("f", 58) + `","image":"old","annotations":{"com.openfaas.infer.canary":"10"}}`,
		"a model cannot":   `{"service":"f","image":"new","annotations":{"com.openfaas.infer.canary":"10"}}`,
		"from 1 to 100":    deploymentOf("new", "com.openfaas.infer.canary", "0"),
		"com.openfaas.slo": deploymentOf("new", "com.openfaas.infer.canary", "5", "com.openfaas.slo.latency", "no"),
	} {
		if got := r.do("POST", "/system/functions", body); got.Code != 400 || !strings.Contains(got.Body.String(), wrong) {
			t.Errorf("%s: %d %s", body, got.Code, got.Body)
		}
	}
	if got := r.do("POST", "/function/f", "x"); got.Body.String() != "old" {
		t.Errorf("%d %s", got.Code, got.Body)
	}
}

// TestRolloutSurvives: a restart goes on with the rollout, and its end removes the candidate with the function.
func TestRolloutSurvives(t *testing.T) {
	r := newSides(t, saying("new"))
	r.begin(t)
	again := newRig(t, func(o *Options) { o.Store, o.Controller = r.store, r.Server.controller })
	if err := again.Restore(context.Background()); err != nil {
		t.Fatal(err)
	}
	x := again.rollouts.ofFunction("f.openfaas-fn")
	if x == nil {
		t.Fatal("the rollout is gone")
	}
	if got := again.do("DELETE", "/system/functions", `{"functionName":"f"}`); got.Code != http.StatusAccepted {
		t.Fatalf("%d %s", got.Code, got.Body)
	}
	if kept, _ := again.store.Functions(""); len(kept) > 0 {
		t.Errorf("the store still has %v", kept)
	}
}
