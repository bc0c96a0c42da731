package provider

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider/rollout"
)

// pair is the other replica of one of two, which share no store: each has the same revisions.
type pair struct {
	leads bool
	other *rig
}

func (p *pair) Leads() bool { return p.leads }

func (p *pair) Exchange(_ context.Context, all []RolloutStand) []RolloutCounts {
	counts := Rollouts{p.other.Server}.Follow(all)
	for i := range counts {
		counts[i].Replica = "other"
	}
	return counts
}

// twoReplicas returns two replicas with a rollout. The first leads.
func twoReplicas(t *testing.T, next dispatcherFunc) (all [2]*rig, x [2]*running, peers [2]*pair) {
	t.Helper()
	for i := range all {
		all[i] = newSides(t, next)
		x[i] = all[i].begin(t)
	}
	for i := range all {
		peers[i] = &pair{leads: i == 0, other: all[1-i]}
		all[i].rollouts.replicas = otherReplicas{peers[i]}
	}
	return all, x, peers
}

// pass lets a replica look once.
func (r *rig) pass(x *running, at time.Time) {
	var work sync.WaitGroup
	r.rollouts.replicas.exchange(context.Background(), []*running{x})
	r.rollouts.look(context.Background(), x, at, &work)
	work.Wait()
}

// TestReplicasSumEvidence: the leader decides with what all replicas have counted, and the others split as it says.
func TestReplicasSumEvidence(t *testing.T) {
	all, x, _ := twoReplicas(t, saying("new"))
	over := func() bool { return all[0].rollouts.ofFunction("f.openfaas-fn") == nil }
	split := 0
	for i := 0; i < 200 && !over(); i++ {
		at := time.Now().Add(time.Duration(i) * time.Second)
		all[0].pass(x[0], at)
		x[1].mu.Lock()
		x[1].stand.heard = at // It is heard in the test's time.
		x[1].mu.Unlock()
		all[1].pass(x[1], at)
		for range 100 { // Only the one that follows has requests.
			if got := all[1].do("POST", "/function/f", "x"); got.Code != http.StatusOK {
				t.Fatalf("%d %s", got.Code, got.Body)
			} else if got.Body.String() == "new" {
				split++
			}
		}
		for x[1].split.copies.Load() > 0 {
			time.Sleep(time.Millisecond)
		}
	}
	if s := all[0].rolloutStatus(t); s.Last == nil || !s.Last.Promoted || split < 50 {
		t.Fatalf("%d requests were answered by the candidate; %+v", split, s)
	}
	if all[1].rollouts.ofFunction("f.openfaas-fn") == nil {
		t.Error("the other replica decided, too")
	}
}

// TestFollowerWithoutLeader: a replica that hears nothing of the leader sends the candidate nothing.
func TestFollowerWithoutLeader(t *testing.T) {
	all, x, peers := twoReplicas(t, saying("new"))
	now := time.Now()
	all[1].pass(x[1], now)
	if x[1].split.ready.Load() {
		t.Error("it sends requests before the leader's word")
	}
	stand := RolloutStand{Function: "f.openfaas-fn", Revision: x[1].revision, Phase: rollout.Sharing, Ready: true, Why: "so"}
	Rollouts{all[1].Server}.Follow([]RolloutStand{stand})
	all[1].pass(x[1], time.Now())
	if !x[1].split.ready.Load() || x[1].split.share.Load() == 0 {
		t.Error("it does not follow the leader")
	}
	if s := all[1].rolloutStatus(t); s.Rollout == nil || s.Rollout.Phase != rollout.Sharing || s.Rollout.Share != 50 || s.Rollout.Why != "so" {
		t.Errorf("it shows %+v", s.Rollout)
	}
	all[1].pass(x[1], time.Now().Add(2*standPatience))
	if x[1].split.ready.Load() {
		t.Error("it sends requests although the leader is silent")
	}
	peers[0].leads, peers[1].leads = false, true
	all[1].pass(x[1], time.Now())
	if x[1].state.Phase != rollout.Sharing || !x[1].split.ready.Load() {
		t.Errorf("the new leader begins at phase %s", x[1].state.Phase)
	}
}

// TestRollsOutWhatKubectlApplies: a deployment from elsewhere is rolled out if it asks for that. One that was rolled back
// is not tried again.
func TestRollsOutWhatKubectlApplies(t *testing.T) {
	r := newSides(t, func(context.Context, *frame.Request) (*frame.Response, error) {
		return &frame.Response{Status: 500, Header: http.Header{}, Body: []byte("broken")}, nil
	})
	settings := map[string]string{"com.openfaas.slo.latency": "50ms"}
	d := types.FunctionDeployment{Service: "f", Namespace: DefaultNamespace, Image: "new", Annotations: &settings}
	if gradual, err := (Rollouts{r.Server}).Begin(t.Context(), d); gradual || err != nil {
		t.Fatalf("without the annotation: %v, %v", gradual, err)
	}
	settings["com.openfaas.infer.canary"] = "50"
	other := d
	other.Service = "g"
	if gradual, err := (Rollouts{r.Server}).Begin(t.Context(), other); gradual || err != nil {
		t.Fatalf("without a revision before: %v, %v", gradual, err)
	}
	for range 2 { // A second look at the object changes nothing.
		if gradual, err := (Rollouts{r.Server}).Begin(t.Context(), d); !gradual || err != nil {
			t.Fatalf("%v, %v", gradual, err)
		}
	}
	x := r.rollouts.ofFunction("f.openfaas-fn")
	if x == nil {
		t.Fatal("no rollout began")
	}
	r.look(t, x, 100, 20)
	gradual, err := (Rollouts{r.Server}).Begin(t.Context(), d)
	if !gradual || !errors.As(err, new(*RolledBack)) {
		t.Fatalf("after it was rolled back: %v, %v", gradual, err)
	}
	if r.rollouts.ofFunction("f.openfaas-fn") != nil {
		t.Error("it is tried again")
	}
	settings["com.openfaas.infer.max-batch"] = "2"
	if gradual, err := (Rollouts{r.Server}).Begin(t.Context(), d); !gradual || err != nil || r.rollouts.ofFunction("f.openfaas-fn") == nil {
		t.Errorf("after a change: %v, %v", gradual, err)
	}
}

// TestNextLeaderTakesOldCountsForNothing: what another replica counted before this one led is no evidence of the step
// at which it goes on.
func TestNextLeaderTakesOldCountsForNothing(t *testing.T) {
	all, x, peers := twoReplicas(t, saying("new"))
	stand := RolloutStand{Function: "f.openfaas-fn", Revision: x[1].revision, Phase: rollout.Sharing, Ready: true}
	Rollouts{all[1].Server}.Follow([]RolloutStand{stand})
	now := time.Now()
	all[1].pass(x[1], now)
	for range 5000 { // The leader until now has counted all of the step before.
		x[0].split.next.count(http.StatusOK, false)
		x[0].split.present.count(http.StatusOK, false)
	}
	peers[0].leads, peers[1].leads = false, true
	for i := range 5 {
		all[1].pass(x[1], now.Add(time.Duration(i)*time.Second))
	}
	if s := all[1].rolloutStatus(t); s.Rollout == nil || s.Rollout.Candidate.Answered < 5000 {
		t.Errorf("it decided with counts from before: %+v, %+v", s.Rollout, s.Last)
	}
}

// TestCountsNeverFall: a replica that begins to count anew takes nothing away from the sum.
func TestCountsNeverFall(t *testing.T) {
	counted := func(answered, missed uint64) RolloutTally {
		return RolloutTally{Candidate: rollout.Side{Answered: answered, Missed: missed}}
	}
	x := running{split: &split{}, others: replicaTallies{}}
	var before RolloutTally
	for _, c := range []RolloutTally{counted(5, 1), counted(9, 1), counted(0, 0), counted(3, 2), counted(4, 0), counted(1, 0)} {
		x.others.note("a", c)
		now := x.tally()
		if !now.covers(before) {
			t.Errorf("%+v after %+v", now, before)
		}
		before = now
	}
	if want := counted(9+3+4+1, 1+2); before != want {
		t.Errorf("%+v, not %+v", before, want)
	}
}

// TestKubectlChangesItsMind: an object may go back to an earlier deployment while another one is rolled out.
func TestKubectlChangesItsMind(t *testing.T) {
	r := newSides(t, saying("new"))
	r.Server.controller.(sides).answers["newer"] = saying("newer")
	begin := func(image string) {
		t.Helper()
		settings := map[string]string{"com.openfaas.slo.latency": "50ms", "com.openfaas.infer.canary": "50"}
		d := types.FunctionDeployment{Service: "f", Namespace: DefaultNamespace, Image: image, Annotations: &settings}
		if gradual, err := (Rollouts{r.Server}).Begin(t.Context(), d); !gradual || err != nil {
			t.Fatalf("%s: %v, %v", image, gradual, err)
		}
		if x := r.rollouts.ofFunction("f.openfaas-fn"); x == nil || x.split.candidate.Load().Deployment.Image != image {
			t.Fatalf("%s is not rolled out", image)
		}
	}
	for _, image := range []string{"new", "newer", "new"} { // None of them has failed.
		begin(image)
	}
	x := r.rollouts.ofFunction("f.openfaas-fn")
	for _, present := range []uint64{x.revision, x.revision - 1} { // It has taken over, it has not.
		if err := (Rollouts{r.Server}).TakeBack(t.Context(), DefaultNamespace, "f", present); err != nil {
			t.Fatal(err)
		}
		if goesOn := r.rollouts.ofFunction("f.openfaas-fn") == x; goesOn != (present == x.revision) {
			t.Errorf("with revision %d it goes on: %v", present, goesOn)
		}
	}
	if s := r.rolloutStatus(t); s.Image != "old" || s.Last == nil || s.Last.Promoted {
		t.Errorf("%+v, %+v", s, s.Last)
	}
}
