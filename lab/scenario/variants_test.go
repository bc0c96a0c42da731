package scenario

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/lab/baselines"
	"github.com/faas-infer/faas-infer/lab/variants"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

const someVariants = `
kind: variants
variants: infaas-table2
duration: 1m
cluster:
  machines:
    - {name: cpu, count: 2, device: cpu, price: 2}
    - {name: gpu, count: 2, device: gpu, price: 16, serial: true, boot: 30s, running: 1}
functions:
  - name: f
    model: resnet50
    slo_of_cpu: 1.5
    accuracy: 70
    pinned: {clipper+: {hardware: gpu, instances: 2}, sm+: {variant: A}}
    arrivals: {poisson: 10}
`

// A function has the variants of its model whose hardware the cluster has. A price is a share of
// a machine. A variant executes as many at once as its rate and its time say.
func TestVariants(t *testing.T) {
	s, err := Parse("x.yaml", []byte(someVariants), "", Overrides{})
	if err != nil {
		t.Fatal(err)
	}
	of := func(name string) (nodes []cluster.Node, all []systems.Variant) {
		system, err := baselines.ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		out, err := s.Setup(system, 1, 1)
		if err != nil {
			t.Fatal(err)
		}
		f := out.Functions[0]
		if f.SLO != 300*time.Millisecond || out.Boots["gpu-2"] != 30*time.Second || len(out.Boots) != 1 || out.Serial["gpu-1"] != baselines.Colocates(system) {
			t.Errorf("%s: %v, %v, %v", name, f.SLO, out.Boots, out.Serial)
		}
		if pin := f.Variants.Pinned; pin[baselines.Clipper] != (systems.Pin{Variant: "C", Instances: 2}) || pin[baselines.SageMaker].Variant != "A" {
			t.Errorf("%+v", pin)
		}
		return out.Nodes, f.Variants.All
	}
	nodes, all := of(baselines.INFaaSName)
	if len(all) != 2 || all[1].Name != "C" || all[1].Loading != 2500*time.Millisecond || len(all[1].Times.Configs()) != 1 {
		t.Fatalf("%+v", all)
	}
	for i, fit := range []int{2, 1} { // On CPUs, and on the GPU.
		c := all[i].Times.Configs()[0]
		if on := nodes[2*i]; !c.Resources.Add(c.Resources).Fits(on.Total) != (fit == 1) || !c.Resources.Fits(on.Total) || c.Resources.Fits(nodes[2-2*i].Total) {
			t.Errorf("%v of %v", c, on)
		}
	}
	c := all[1].Times.Configs()[0]
	if exec, ok := all[1].Times.Exec(c, 3); !ok || exec != 15*time.Millisecond || c.Batch != 12 {
		t.Errorf("%v: %v, %v", c, exec, ok)
	}
	// With shares of its time, all of which fit.
	_, all = of(systems.FaaSInfer)
	for _, c := range all[1].Times.Configs() {
		if !c.Resources.Fits(nodes[2].Total) {
			t.Errorf("%v of %v", c, nodes[2])
		}
	}
}

// Instances of a serial device may have shares of its time, for 1 % of its price in sum.
func TestSharesOfTime(t *testing.T) {
	file := filepath.Join(t.TempDir(), "v.csv")
	row := "model,variant,hardware,state,latency_ms,rps,load_ms,memory_mb,accuracy,cost\nresnet50,G,gpu,inactive,10,100,500,900,76,4\nresnet50,A,cpu,inactive,100,10,500,900,76,1\n"
	if err := os.WriteFile(file, []byte(row), 0o600); err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(someVariants, "sm+: {variant: A}", "sm+: {variant: G}", 1)
	s, err := Parse("x.yaml", []byte(text), "", Overrides{Variants: file})
	if err != nil {
		t.Fatal(err)
	}
	g := setup(t, s, 1, 1).Functions[0].Variants.All[0].Times
	for _, c := range g.Configs() {
		exec, _ := g.Exec(c, 1)
		if want := map[int]time.Duration{4016: 100 * time.Millisecond, 4080: 20 * time.Millisecond, 4160: 10 * time.Millisecond}[c.GPU]; want != 0 && exec != want {
			t.Errorf("%v takes %v, want %v", c, exec, want)
		}
		// As many have room as their shares of time say, at most four by memory.
		room := s.Cluster.Nodes()[2].Total
		fit := 0
		for c.Resources.Fits(room) {
			room, fit = room.Sub(c.Resources), fit+1
		}
		if want := map[int]int{4016: 4, 4080: 2, 4160: 1}[c.GPU]; want != 0 && fit != want {
			t.Errorf("%d of %v have room, want %d", fit, c, want)
		}
	}
	if n := len(g.Configs()); n != len(shares) {
		t.Errorf("%d configs", n)
	}
}

// Each function is a case of its own.
func TestApart(t *testing.T) {
	cases := load(t, "infaas-table3", Overrides{}).Cases()
	if len(cases) != 3 || cases[2].Case != "1000-300ms" || len(cases[2].Functions) != 1 || !cases[0].Told || cases[0].INFaaS.Slack != 1 {
		t.Errorf("%d cases", len(cases))
	}
}

// A function may choose among the variants of several models, and prefer accurate ones.
func TestSeveralModels(t *testing.T) {
	s := load(t, "accuracy-scaling", Overrides{})
	if f := s.Functions[1]; len(f.Variants) != 9 || !f.Accurate {
		t.Errorf("%d variants, accurate %v", len(f.Variants), f.Accurate)
	}
	setup := setup(t, s, 1, 1)
	if f := setup.Functions[1]; !f.Accurate || f.Variants.All[0].Accuracy != 76.1 {
		t.Errorf("accurate %v, accuracy %v", f.Accurate, f.Variants.All[0].Accuracy)
	}
}

// What is wrong with variants is named.
func TestBadVariants(t *testing.T) {
	for change, want := range map[string]string{
		"variants: infaas-table2=variants: table9":             `variants: there is no table "table9"`,
		"kind: variants=kind: run":                             "variants: the kinds variants and accuracy need a table of variants, and no other kind has one",
		"model: resnet50=model: bert":                          "model: no variant of bert",
		"accuracy: 70=accuracy: 90":                            "model: no variant of resnet50 is accurate enough",
		"variant: A=variant: Z":                                "pinned.sm+: resnet50 has no such variant",
		"sm+: {variant: A}=infless: {variant: A}":              "pinned.infless: unknown key",
		"device: cpu, price: 2=device: tpu, price: 2":          `machines[0].device: "tpu": it must be one of cpu, gpu, inferentia`,
		"device: cpu, price: 2=device: cpu":                    "machines[0].price: it is missing",
		"device: cpu, price: 2=cpu: 1, memory: 1GiB, price: 2": "machines[0].price: only a machine with a device has this key",
		"slo_of_cpu: 1.5=max_batch: 3":                         "slo: it is missing",
		"accuracy: 70=prefer: speed":                           `prefer: "speed": it must be cost or accuracy`,
		"accuracy: 70=models: [bert, gpt]":                     "model: no variant of bert or gpt",
	} {
		from, to, _ := strings.Cut(change, "=")
		if _, err := Parse("x.yaml", []byte(strings.Replace(someVariants, from, to, 1)), "", Overrides{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", change, err, want)
		}
	}
	_, err := Load("poisson", Overrides{Variants: variants.Tables()[0]})
	if err == nil || !strings.Contains(err.Error(), "cannot be overridden") {
		t.Errorf("a scenario without variants: %v", err)
	}
}

// A batch that is not full takes its fixed part, and the rest as far as it is full.
func TestFixedPart(t *testing.T) {
	s, err := Parse("x.yaml", []byte("fixed: 0.2\n"+someVariants), "", Overrides{})
	if err != nil {
		t.Fatal(err)
	}
	c := setup(t, s, 1, 1).Functions[0].Variants.All[1].Times
	whole := c.Configs()[len(c.Configs())-1]
	if exec, ok := c.Exec(whole, 3); !ok || exec != 6*time.Millisecond { // 15 ms · (0.2 + 0.8/4)
		t.Errorf("3 of 12 take %v", exec)
	}
}

// A trace's lines can be added up, and its rates go from low to peak.
func TestGroupsOfATrace(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "t.csv"), []byte("minute,a\n0,1\n1,1\n2,4\n3,2\n4,3\n5,5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	text := "kind: run\ncluster: testbed\nfunctions:\n- {name: ssd, size: 1MiB, slo: 1s, arrivals: {trace: {file: t.csv, group: 2, step: 10s, low: 10, peak: 40}}}\n"
	s, err := Parse("x.yaml", []byte(text), dir, Overrides{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Functions[0].Arrivals(1, 1)
	if err != nil {
		t.Fatal(err)
	}
	// The sums are 2, 6 and 8.
	for at, want := range []float64{10, 30, 40} {
		if got := p.Rate(time.Duration(10*at+1) * time.Second); math.Abs(got-want) > 1e-9 {
			t.Errorf("step %d: %v/s, want %v", at, got, want)
		}
	}
	if s.Duration != 30*time.Second {
		t.Errorf("it lasts %v", s.Duration)
	}
	bad := strings.Replace(text, "low: 10", "low: 50", 1)
	if _, err := Parse("x.yaml", []byte(bad), dir, Overrides{}); err == nil || !strings.Contains(err.Error(), "low: 50: it must be less than peak") {
		t.Errorf("%v", err)
	}
}
