package pool

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/annotation"
)

// deployed returns a function of a model that asks to share.
func deployed(t *testing.T, name, namespace string, settings map[string]string, edit ...func(*types.FunctionDeployment)) *provider.Function {
	t.Helper()
	all := map[string]string{annotation.SLOLatency: "200ms", annotation.InferShare: annotation.ShareNamespace}
	for key, value := range settings {
		all[key] = value
	}
	d := types.FunctionDeployment{Service: name, Namespace: namespace, Image: "m", Annotations: &all}
	for _, e := range edit {
		e(&d)
	}
	in, err := annotation.Parse(d)
	if err != nil {
		t.Fatal(err)
	}
	return &provider.Function{Name: provider.FullName(name, namespace), Deployment: d, Inference: in, Revision: 1}
}

var whole = Artefact{Models: 1, Content: "c"}

// Functions share whatever is the members' own, and nothing else.
func TestWhoShares(t *testing.T) {
	first, why := KeyOf(deployed(t, "a", "n", nil), whole, batching.SharedName)
	if first == "" || why != "" {
		t.Fatalf("key %q, %q", first, why)
	}
	all := map[string]string{annotation.InferShare: annotation.ShareAll}
	everywhere, _ := KeyOf(deployed(t, "a", "n", all), whole, batching.SharedName)
	for _, c := range []struct {
		what     string
		f        *provider.Function
		artefact Artefact
		want     string
	}{
		{"another objective", deployed(t, "b", "n", map[string]string{annotation.SLOLatency: "2s"}), whole, first},
		{"another minimum", deployed(t, "b", "n", map[string]string{annotation.ScaleMin: "2"}), whole, first},
		{"other callers", deployed(t, "b", "n", map[string]string{annotation.InferRate: "5/s"}), whole, first},
		{"the default policy by its name", deployed(t, "b", "n", map[string]string{annotation.InferPolicy: batching.SharedName}), whole, first},
		{"another image", deployed(t, "b", "n", nil, func(d *types.FunctionDeployment) { d.Image = "o" }), whole, first},
		{"another model", deployed(t, "b", "n", nil), Artefact{Models: 1, Content: "d"}, "other"},
		{"another namespace", deployed(t, "b", "o", nil), whole, "other"},
		{"another namespace, and all share", deployed(t, "b", "o", all), whole, everywhere},
		{"another percentile", deployed(t, "b", "n", map[string]string{annotation.SLOPercentile: "95"}), whole, "other"},
		{"another largest batch", deployed(t, "b", "n", map[string]string{annotation.InferMaxBatch: "8"}), whole, "other"},
		{"another maximum length", deployed(t, "b", "n", map[string]string{annotation.InferMaxLength: "8"}), whole, "other"},
		{"long texts refused", deployed(t, "b", "n", map[string]string{annotation.InferMaxLength: "refuse"}), whole, "other"},
		{"another keep-alive", deployed(t, "b", "n", map[string]string{annotation.InferKeepAlive: "1m"}), whole, "other"},
		{"another environment", deployed(t, "b", "n", nil, func(d *types.FunctionDeployment) { d.EnvVars = map[string]string{"x": "y"} }), whole, "other"},
		{"other limits", deployed(t, "b", "n", nil, func(d *types.FunctionDeployment) { d.Limits = &types.FunctionResources{CPU: "1"} }), whole, "other"},
		{"a replaced secret", deployed(t, "b", "n", nil), Artefact{Models: 1, Content: "c", Secrets: "s 2"}, "other"},
	} {
		key, why := KeyOf(c.f, c.artefact, batching.SharedName)
		if c.want == "other" && (key == first || key == "" || why != "") || c.want != "other" && key != c.want {
			t.Errorf("%s: key %q, %q; the first has %q", c.what, key, why, first)
		}
	}
}

// A function that cannot share says why, and one that does not ask says nothing.
func TestWhyNotShared(t *testing.T) {
	for _, c := range []struct {
		settings map[string]string
		artefact Artefact
		want     string
	}{
		{map[string]string{annotation.InferShare: annotation.ShareNone}, whole, ""},
		{nil, Artefact{Models: 1, program: true}, "is a program"},
		{map[string]string{annotation.InferPolicy: "infless"}, whole, "policy is infless"},
		{map[string]string{annotation.InferPartition: "auto"}, whole, "cut model"},
		{map[string]string{annotation.InferCanary: "10"}, whole, "proves itself"},
		{nil, Artefact{Models: 3}, "3 variants"},
	} {
		f := deployed(t, "a", "n", c.settings)
		if c.artefact.program {
			f.Inference.Share = ""
		}
		key, why := KeyOf(f, c.artefact, batching.SharedName)
		if key != "" || (c.want == "") != (why == "") || !strings.Contains(why, c.want) {
			t.Errorf("%v: key %q, %q; want %q", c.settings, key, why, c.want)
		}
	}
}

// A provider of the next version must find the pools of this one, which are named by their keys.
func TestKeysStayWhatTheyAre(t *testing.T) {
	const want = "b83051a7ce4e757b"
	if key, _ := KeyOf(deployed(t, "a", "n", map[string]string{annotation.InferMaxBatch: "8"}), whole, batching.SharedName); key != want {
		t.Errorf("the key is %s, not %s as before: instances that run would be started anew", key, want)
	}
}

// A pool keeps the objective of the member with the shortest, in whatever order they come.
func TestAPoolKeepsEveryObjective(t *testing.T) {
	a, b := deployed(t, "a", "n", map[string]string{annotation.SLOLatency: "2s"}), deployed(t, "b", "n", map[string]string{annotation.ScaleMin: "3"})
	b.Replicas, b.Revision = 3, 7
	a.Inference.MaxReplicas, b.Inference.MaxReplicas = 4, 4
	p := together("k", map[string]*provider.Function{a.Name: a, b.Name: b}, nil)
	if p.Inference.MaxReplicas != 8 {
		t.Errorf("the pool may have %d instances, want those of both", p.Inference.MaxReplicas)
	}
	if p.Inference.SLO != 200*time.Millisecond || p.Inference.Shortest != 200*time.Millisecond || p.Replicas != 3 || p.Inference.MinReplicas != 3 || p.Revision != onlyRevision {
		t.Errorf("pool %+v", p)
	}
	if p.Name != "shared-k.pool.n" || !Is(p.Name) || Is(a.Name) || keyIn(p.Name) != "k" {
		t.Errorf("its name is %q", p.Name)
	}
	if a.Inference.SLO != 2*time.Second || a.Name != "a.n" {
		t.Error("a member was changed")
	}
}

// A member whose objective the model cannot keep does not shorten that of the pool, unless there are no others.
func TestAHopelessMemberSpoilsNoPool(t *testing.T) {
	a, b := deployed(t, "a", "n", map[string]string{annotation.SLOLatency: "2s"}), deployed(t, "b", "n", map[string]string{annotation.SLOLatency: "1ms", annotation.ScaleMin: "9"})
	members := map[string]*provider.Function{a.Name: a, b.Name: b}
	if p := together("k", members, map[string]string{b.Name: "too slow"}); p.Inference.SLO != 2*time.Second || p.Inference.MinReplicas == 9 {
		t.Errorf("the pool has the objective %v and at least %d instances", p.Inference.SLO, p.Inference.MinReplicas)
	}
	if p := together("k", members, map[string]string{a.Name: "too slow", b.Name: "too slow"}); p.Inference.SLO != time.Millisecond {
		t.Errorf("a pool without hope has the objective %v", p.Inference.SLO)
	}
	if len(members) != 2 {
		t.Error("the members were changed")
	}
}

// Use divides the cost, and old use counts less.
func TestUseDividesTheCost(t *testing.T) {
	now := time.Now()
	var a, b use
	a.add(now, 3*time.Second)
	b.add(now, time.Second)
	if p := part(a.lately(now), a.lately(now)+b.lately(now), 2); p != 0.75 {
		t.Errorf("a's part is %v", p)
	}
	later := now.Add(5 * useMemory)
	b.add(later, time.Second)
	if p := part(a.lately(later), a.lately(later)+b.lately(later), 2); p > 0.03 {
		t.Errorf("long after, a's part is %v", p)
	}
	all := &use{}
	m, other := &member{all: all}, &member{all: all}
	for _, x := range []*member{m, other, other} {
		x.use.add(now, time.Second)
		x.all.add(now, time.Second)
	}
	if p := m.part(now, 2); p < 0.33 || p > 0.34 {
		t.Errorf("the part of one of three seconds is %v", p)
	}
	all.remove(later, other.use.lately(later))
	if p := m.part(later, 1); p < 0.99 || p > 1 {
		t.Errorf("alone, a member's part is %v", p)
	}
	if p := part(0, 0, 4); p != 0.25 {
		t.Errorf("without use a member's part is %v", p)
	}
}

// Only the members with the shortest objectives are asked about.
func TestJudgeAsksFew(t *testing.T) {
	var all []*provider.Function
	for _, slo := range []string{"1s", "2ms", "500ms", "1ms", "2s"} {
		all = append(all, deployed(t, "f"+slo, "n", map[string]string{annotation.SLOLatency: slo}))
	}
	asked := 0
	why := judge(all, func(f *provider.Function) error {
		asked++
		if f.Inference.SLO < 10*time.Millisecond {
			return errors.New("too slow")
		}
		return nil
	})
	if asked != 3 || len(why) != 2 || why["f1ms.n"] == "" || why["f2ms.n"] == "" {
		t.Errorf("%d asked; hopeless: %v", asked, why)
	}
}

// Functions find each other by their keys, however they come and go, and nothing is left of those that have gone.
func TestPlaces(t *testing.T) {
	p := New(Options{})
	alone := func(string) bool { return false }
	at := Place{Key: "k", asks: true, stated: true}
	if join := p.Placed("a", at, alone); len(join) > 0 || !strings.Contains(p.Why("a"), "no other function") {
		t.Errorf("the first one joins %v; %s", join, p.Why("a"))
	}
	if p.others("a", "k") || !p.others("b", "k") {
		t.Error("the first one is another one for itself, or none for the second")
	}
	if join := p.Placed("b", at, alone); len(join) != 2 {
		t.Errorf("%v join", join)
	}
	p.Placed("c", Place{asks: true, stated: true, why: "it is odd"}, alone)
	p.Placed("d", Place{Key: "l", asks: true}, alone)
	if p.Why("c") != "shares no instances: it is odd" || p.Why("d") != "" {
		t.Errorf("%q, %q", p.Why("c"), p.Why("d"))
	}
	p.Placed("b", Place{Key: "l", asks: true}, alone) // Its model has changed.
	if p.others("a", "k") || !p.others("d", "l") {
		t.Error("who has another model still has the first key, too")
	}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		p.Forget(name)
	}
	if len(p.placed)+len(p.byKey)+len(p.pools) > 0 {
		t.Errorf("left: %v %v %v", p.placed, p.byKey, p.pools)
	}
}
