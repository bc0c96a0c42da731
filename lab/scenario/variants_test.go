package scenario

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
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
		system, err := systems.ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		out, err := s.Setup(system, 1, 1)
		if err != nil {
			t.Fatal(err)
		}
		f := out.Functions[0]
		if f.SLO != 300*time.Millisecond || out.Boots["gpu-2"] != 30*time.Second || len(out.Boots) != 1 || out.Serial["gpu-1"] != system.Colocates() {
			t.Errorf("%s: %v, %v, %v", name, f.SLO, out.Boots, out.Serial)
		}
		if pin := f.Variants.Pinned; pin[systems.Clipper] != (systems.Pin{Variant: "C", Instances: 2}) || pin[systems.SageMaker].Variant != "A" {
			t.Errorf("%+v", pin)
		}
		return out.Nodes, f.Variants.All
	}
	nodes, all := of(systems.INFaaSName)
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
	// With shares of their own, instances on a tenth of the GPU are ten times as slow.
	_, all = of(systems.FaaSInfer)
	if cs := all[1].Times.Configs(); len(cs) != 1 { // C costs a whole GPU with any share.
		t.Errorf("%v", cs)
	}
}

// Instances of a serial device that cost a part of it may have shares of their own.
func TestSharesOfTheirOwn(t *testing.T) {
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
		// 4 of 16 is the memory's part, and 8 is half of the device.
		if want := map[int]time.Duration{4000: 40 * time.Millisecond, 8000: 20 * time.Millisecond, 16000: 10 * time.Millisecond}[c.GPU]; want != 0 && exec != want {
			t.Errorf("%v takes %v, want %v", c, exec, want)
		}
	}
	if n := len(g.Configs()); n != 6 {
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

// What is wrong with variants is named.
func TestBadVariants(t *testing.T) {
	for change, want := range map[string]string{
		"variants: infaas-table2=variants: table9":             `variants: there is no table "table9"`,
		"kind: variants=kind: run":                             "variants: the kind variants needs a table of variants, and no other kind has one",
		"model: resnet50=model: bert":                          "model: no variant of bert",
		"accuracy: 70=accuracy: 90":                            "model: no variant of resnet50 is accurate enough",
		"variant: A=variant: Z":                                "pinned.sm+: resnet50 has no such variant",
		"sm+: {variant: A}=infless: {variant: A}":              "pinned.infless: unknown key",
		"device: cpu, price: 2=device: tpu, price: 2":          `machines[0].device: "tpu": it must be one of cpu, gpu, inferentia`,
		"device: cpu, price: 2=device: cpu":                    "machines[0].price: it is missing",
		"device: cpu, price: 2=cpu: 1, memory: 1GiB, price: 2": "machines[0].price: only a machine with a device has this key",
		"slo_of_cpu: 1.5=max_batch: 3":                         "slo: it is missing",
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
