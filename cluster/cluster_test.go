package cluster

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"
)

func random(r *rand.Rand) Resources {
	return Resources{CPU: r.IntN(4000), GPU: r.IntN(100), Memory: r.Int64N(1 << 30), GPUMemory: r.Int64N(1 << 30)}
}

// Sub undoes Add, subtracting what fits leaves no dimension below zero, and a parked
// instance keeps only memory.
func TestResources(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 1000 {
		a, b := random(r), random(r)
		if a.Add(b).Sub(b) != a || !a.Fits(a.Add(b)) || a.Add(b) != b.Add(a) {
			t.Fatalf("%+v and %+v", a, b)
		}
		left := b.Sub(a)
		if a.Fits(b) != (left.CPU >= 0 && left.GPU >= 0 && left.Memory >= 0 && left.GPUMemory >= 0) {
			t.Fatalf("%+v fits into %+v: %v", a, b, a.Fits(b))
		}
		if p := a.Parked(); p != (Resources{Memory: a.Memory, GPUMemory: a.GPUMemory}) || !p.Fits(a) {
			t.Fatalf("%+v parked is %+v", a, p)
		}
	}
	one := Resources{CPU: 1, GPU: 1, Memory: 1, GPUMemory: 1}
	for _, small := range []Resources{{GPU: 1, Memory: 1, GPUMemory: 1}, {CPU: 1, Memory: 1, GPUMemory: 1}, {CPU: 1, GPU: 1, GPUMemory: 1}, {CPU: 1, GPU: 1, Memory: 1}} {
		if one.Fits(small) {
			t.Errorf("%+v fits into %+v", one, small)
		}
	}
}

func TestConfigs(t *testing.T) {
	for cpu, want := range map[int]int{0: 1, 1: 1, 250: 1, 1000: 1, 1001: 2, 2000: 2, 15500: 16} {
		if got := (Config{Resources: Resources{CPU: cpu}}).Threads(); got != want {
			t.Errorf("%dm feed %d threads, want %d", cpu, got, want)
		}
	}
	if got := (Config{Batch: 8, Resources: Resources{CPU: 1000, GPU: 20}}).String(); got != "⟨8,1000m,20%⟩" {
		t.Error(got)
	}
}

func TestHolding(t *testing.T) {
	s := InstanceSpec{Config: Config{Batch: 4, Resources: Resources{CPU: 1000, GPU: 30, Memory: 1 << 20, GPUMemory: 1 << 10}}}
	if s.Holds() != s.Config.Resources {
		t.Errorf("it holds %+v", s.Holds())
	}
	if s.Parked = true; s.Holds() != s.Config.Parked() {
		t.Errorf("parked it holds %+v", s.Holds())
	}
}

// A set's members hold their shares of their own nodes. A set on one node holds all of it there, as
// an instance does.
func TestHoldingOnNodes(t *testing.T) {
	s := InstanceSpec{Node: "a", Config: Config{Batch: 1, Parts: 3, Resources: Resources{CPU: 3000, Memory: 300}}}
	held := func() map[string]Resources {
		on := map[string]Resources{}
		for node, r := range s.Shares() {
			on[node] = on[node].Add(r)
		}
		return on
	}
	if got := held(); len(got) != 1 || got["a"] != s.Config.Resources {
		t.Errorf("on one node: %+v", got)
	}
	s.Nodes = []string{"a", "b", "a"}
	if got := held(); len(got) != 2 || got["a"] != (Resources{CPU: 2000, Memory: 200}) || got["b"] != (Resources{CPU: 1000, Memory: 100}) {
		t.Errorf("on two nodes: %+v", got)
	}
	s.Parked = true
	if got := held(); got["a"] != (Resources{Memory: 200}) || got["b"] != (Resources{Memory: 100}) {
		t.Errorf("parked: %+v", got)
	}
	for node := range Over(s.Node, s.Nodes, Resources{}) {
		if node != "a" {
			t.Error("it does not end when it is left")
		}
		break
	}
}

// A member's config is a share of the set's, and gives it back.
func TestShares(t *testing.T) {
	set := Config{Batch: 8, Parts: 4, Concurrency: 2, Resources: Resources{CPU: 4000, GPU: 40, Memory: 400, GPUMemory: 80}}
	if got := set.Share(); got != (Config{Batch: 8, Parts: 4, Concurrency: 2, Resources: Resources{CPU: 1000, GPU: 10, Memory: 100, GPUMemory: 20}}) || got.Sum() != set {
		t.Errorf("a member has %+v", got)
	}
	if one := (Config{Batch: 8, Resources: Resources{CPU: 1}}); one.Share() != one || one.Sum() != one {
		t.Error("an instance that is no set has another share than all")
	}
}

// A later provider reads the records of instances: every field survives, and a record
// without a kind is a model's.
func TestRecords(t *testing.T) {
	in := Instance{InstanceSpec: InstanceSpec{
		ID: "f-1", Kind: Process, Function: "f.n", Revision: 3, Node: "a", Nodes: []string{"a", "b"}, Set: "f", Member: 2, Role: Shadow, Paired: true, Part: "0:3", Body: "f-0", Parked: true, Artefact: Artefact{Bundle: "b", Plan: "{}"}, Env: map[string]string{"A": "1"},
		Config: Config{Batch: 2, Parts: 3, Concurrency: 2, Resources: Resources{CPU: 500, Memory: 1 << 20}},
	}, State: Ready, Network: "unix", Address: "/s", Reason: "r"}
	text, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var back Instance
	if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(back, in) {
		t.Errorf("%+v, %v: %s", back, err, text)
	}
	var old Instance
	if err := json.Unmarshal([]byte(`{"id":"x","config":{"batch":8,"cpu":1000,"gpu":0,"memory":5},"state":"ready"}`), &old); err != nil || old.Kind != Model || old.Role != Body || old.Config.Batch != 8 || old.Config.CPU != 1000 {
		t.Errorf("%+v, %v", old, err)
	}
}
