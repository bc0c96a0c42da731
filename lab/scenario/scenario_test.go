package scenario

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/lab/baselines"
	"github.com/faas-infer/faas-infer/lab/fleet"
	"github.com/faas-infer/faas-infer/lab/sim"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

func load(t *testing.T, name string, o Overrides) *Scenario {
	t.Helper()
	s, err := Load(name, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func setup(t *testing.T, s *Scenario, load float64, seed uint64) sim.Setup {
	t.Helper()
	system, err := baselines.ByName(systems.Default)
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.Setup(system, load, seed)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Every built-in scenario can be read and makes valid setups.
func TestBuiltin(t *testing.T) {
	all := Builtin()
	if len(all) != len(fleet.ScenarioNames()) {
		t.Errorf("%d of %d scenarios can be read", len(all), len(fleet.ScenarioNames()))
	}
	for _, info := range all {
		s := load(t, info.Name, Overrides{})
		if s.Name != info.Name || info.About == "" || s.About != info.About || s.Seed != 1 {
			t.Errorf("%+v: %q", info, s.Name)
		}
		for _, c := range s.Cases() {
			out := setup(t, c, 1, c.Seed)
			if len(out.Nodes) == 0 || len(out.Functions) == 0 || out.Overhead != c.Overhead || out.Machine("m-1/0") != "m-1" || out.System.Name != systems.Default {
				t.Errorf("%s: %+v", info.Name, out)
			}
			for i, f := range out.Functions {
				if _, ok := f.Arrivals.(sim.Rate); !ok || f.Times == nil || f.SLO <= 0 || f.Start <= 0 || c.Functions[i].Peak <= 0 {
					t.Errorf("%s: %s: %+v", info.Name, c.Case, f)
				}
			}
		}
	}
}

// INFless §5.1: the OSVT functions have an SLO of 200 ms, those of the Q&A robot 50 ms,
// with batches of at most 32. OSVT's loads have the proportions of INFless' release.
func TestTestbedsOfSection51(t *testing.T) {
	for name, want := range map[string]struct {
		slo   time.Duration
		parts []float64
	}{
		"testbed-osvt":       {200 * time.Millisecond, []float64{1, 2, 3}},
		"testbed-osvt-400ms": {400 * time.Millisecond, []float64{1, 2, 3}},
		"testbed-qa":         {50 * time.Millisecond, []float64{1, 1, 1}},
	} {
		s := load(t, name, Overrides{})
		if s.Kind != MaxRPS || len(s.Functions) != 3 || len(s.Cluster.Nodes()) != 16 || len(s.Cases()) != 1 {
			t.Errorf("%+v", s)
		}
		for i, f := range s.Functions {
			if f.SLO != want.slo || f.MaxBatch != 32 || f.Percentile != 99 || f.Peak != want.parts[i]*s.Functions[0].Peak {
				t.Errorf("%s: %+v", name, f)
			}
		}
	}
}

// INFless §5.3: no more than 40 functions, up to 10,000 instances, 2,000 servers.
func TestScaleOfSection53(t *testing.T) {
	s := load(t, "scale", Overrides{})
	if s.Kind != Scale || len(s.Functions) != 40 || len(s.Cluster.Nodes()) != 4000 || !slices.Equal(s.Instances, []int{100, 500, 1000, 2000, 5000, 10000}) {
		t.Errorf("%d functions, %v instances", len(s.Functions), s.Instances)
	}
	if a, b := s.Functions[0], s.Functions[1]; a.Name != "ssd-1" || b.Name != "ssd-2" || a.SLO != b.SLO || 3*a.Peak != b.Peak {
		t.Errorf("%+v, %+v", a, b)
	}
}

// Each trace is a case. Its highest minute has the requested rate. At scale 1 the requests
// are the recorded ones.
func TestTraces(t *testing.T) {
	s := load(t, "traces", Overrides{})
	cases := s.Cases()
	if len(cases) != 3 || cases[0].Case != "sporadic" || cases[2].Case != "bursty" || cases[2].Name != "traces" || cases[1].Duration != 7*24*time.Hour {
		t.Fatalf("%+v", cases)
	}
	for _, c := range cases {
		for _, f := range c.Functions {
			if math.Abs(f.Peak-80) > 1e-9 {
				t.Errorf("%s: %s has a peak of %v", c.Case, f.Name, f.Peak)
			}
		}
	}
	for i, want := range []int{1529, 31211, 40786} {
		c := load(t, "coldstart", Overrides{}).Cases()[i]
		out := setup(t, c, 1, 1)
		n := 0
		for _, ok := out.Functions[0].Arrivals.Next(); ok; _, ok = out.Functions[0].Arrivals.Next() {
			n++
		}
		if n < want || n > want+1 {
			t.Errorf("%s: %d requests, want %d", c.Case, n, want)
		}
	}
}

// The load of INFless' release rises for half an hour: up to 200, 400 and 600 requests/s in
// 200 steps of 9 s.
func TestRamp(t *testing.T) {
	s := load(t, "osvt-ramp", Overrides{})
	if s.Duration != 30*time.Minute || s.Case != "" {
		t.Errorf("%v", s.Duration)
	}
	out := setup(t, s, 1, 1)
	for i, want := range []struct{ peak, last float64 }{{200, 200}, {400, 392}, {600, 527}} {
		last := out.Functions[i].Arrivals.(sim.Rate).Rate(s.Duration - time.Second)
		if f := s.Functions[i]; math.Abs(f.Peak-want.peak) > 1e-9 || math.Abs(last-want.last) > 1e-9 {
			t.Errorf("%s: at most %v, %v at the end", f.Name, f.Peak, last)
		}
	}
}

func TestColdStarts(t *testing.T) {
	s := load(t, "testbed-osvt", Overrides{})
	resnet := s.Functions[1]
	if want := 2196 * time.Millisecond; resnet.Start != want {
		t.Errorf("98 MiB start in %v, want %v", resnet.Start, want)
	}
	if want := int64(512+196) << 20; resnet.Memory != want || resnet.GPUMemory != want {
		t.Errorf("%d and %d bytes", resnet.Memory, resnet.GPUMemory)
	}
	own := load(t, "one-machine", Overrides{}).Functions[2]
	if own.Start != 3*time.Second || own.Memory != 1<<30 || own.GPUMemory != 800<<20 {
		t.Errorf("%+v", own)
	}
	for _, c := range own.Times.Configs() {
		if c.Memory != own.Memory || (c.GPUMemory == own.GPUMemory) != (c.GPU > 0) {
			t.Errorf("%+v", c)
		}
	}
}

// A function's arrivals depend on the seed and its name, not on the other functions.
func TestArrivalsAreAFunctionsOwn(t *testing.T) {
	const one = "- {name: b, model: ssd, size: 29MiB, slo: 200ms, arrivals: {poisson: 10}}\n"
	const head = "kind: run\ncluster: testbed\nduration: 1m\nfunctions:\n"
	first := func(text string, load float64, seed uint64) time.Duration {
		s, err := Parse("x.yaml", []byte(head+text), "", Overrides{})
		if err != nil {
			t.Fatal(err)
		}
		out := setup(t, s, load, seed)
		at, _ := out.Functions[len(out.Functions)-1].Arrivals.Next()
		return at
	}
	alone := first(one, 1, 5)
	if with := first(strings.Replace(one, "b", "a", 1)+one, 1, 5); with != alone {
		t.Errorf("%v with another function, %v alone", with, alone)
	}
	if other := first(one, 1, 6); other == alone {
		t.Error("another seed gives the same")
	}
	if other := first(strings.Replace(one, "b", "a", 1), 1, 5); other == alone {
		t.Error("another name gives the same")
	}
	if double := first(one, 2, 5); (double - alone/2).Abs() > 1 {
		t.Errorf("%v at twice the load, %v at once", double, alone)
	}
}

func TestOverrides(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	traces := write("mine.csv", "minute,x,y\n0,1,2\n1,4,0\n2,0,0\n")
	machines := write("small.yaml", "machines:\n- {cpu: 8, memory: 64GiB}\n")
	seed := uint64(9)
	s := load(t, "traces", Overrides{Trace: traces, Seed: &seed})
	if c := s.Cases(); len(c) != 2 || c[0].Case != "x" || c[1].Case != "y" || c[0].Duration != 3*time.Minute || c[0].Seed != 9 || c[0].Functions[0].Peak != 80 {
		t.Errorf("%+v", c)
	}
	s = load(t, "coldstart", Overrides{Trace: traces, Duration: time.Minute, Cluster: machines})
	if c := s.Cases(); c[1].Duration != time.Minute || len(c[1].Cluster.Nodes()) != 1 || c[1].Functions[0].Peak != 2.0/60 {
		t.Errorf("%+v", c[1])
	}
	requests := write("requests.csv", "time\n0\n0.5\n61\n")
	s = load(t, "coldstart", Overrides{Trace: requests})
	out := setup(t, s.Cases()[0], 1, 1)
	for _, want := range []time.Duration{0, 500 * time.Millisecond, 61 * time.Second} {
		if at, ok := out.Functions[0].Arrivals.Next(); !ok || at != want {
			t.Errorf("a request at %v, recorded at %v", at, want)
		}
	}
	for _, c := range []struct {
		name string
		o    Overrides
		want string
	}{
		{"poisson", Overrides{Trace: traces}, "no key “traces”"},
		{"traces", Overrides{Trace: filepath.Join(dir, "absent.csv")}, "traces.file: override: there is no trace"},
		{"traces", Overrides{Trace: write("gap.csv", "minute,x\n0,1\n2,1\n")}, "line 3: 2 follows 0"},
		{"traces", Overrides{Trace: write("nan.csv", "minute,x\n0,NaN\n")}, `line 2: column x: "NaN" is not a number of requests`},
		{"traces", Overrides{Trace: write("none.csv", "minute,x\n0,0\n")}, "column x of the trace has no requests"},
		{"traces", Overrides{Duration: -time.Second}, "duration: override -1s"},
		{"testbed-osvt", Overrides{Duration: 10 * time.Second}, "warmup: 45s: it must be less than the duration, 10s"},
		{"testbed-osvt", Overrides{Cluster: write("empty.yaml", "machines: []\n")}, "the cluster is empty"},
		{"testbed-osvt", Overrides{Cluster: write("tiny.yaml", "machines:\n- {cpu: 1, memory: 64GiB}\n")}, "functions[0]: ssd fits no node: it needs at least 2 cores, 0.557 GiB, and the largest node, m1-1, has 1 core, 64 GiB"},
		{"testbed-osvt", Overrides{Cluster: write("flat.yaml", "machines:\n- {cpu: 8, memory: 1MiB}\n")}, "functions[0]: ssd fits no node"},
		{"testbed-osvt", Overrides{Cluster: write("slow.yaml", "machines:\n- {cpu: 2, memory: 64GiB}\n")}, ""},
		{"absent", Overrides{}, `there is no scenario "absent": name a file, or one of testbed-osvt`},
		{dir, Overrides{}, "directory"},
	} {
		_, err := Load(c.name, c.o)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s with %+v: got %v, want %q", c.name, c.o, err, c.want)
		}
	}
}

// Paths in a scenario's file are relative to its folder.
func TestFilesBesideAScenario(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"s.yaml": "kind: run\ncluster: c.yaml\nprofile: p.csv\nfunctions:\n" +
			"- {name: a, model: m, size: 1MiB, slo: 50ms, arrivals: {trace: {file: t.csv, scale: 2}}}\n" +
			"- {name: b, model: m, size: 1MiB, slo: 50ms, spread: 0, arrivals: {timestamps: r.csv}}\n" +
			"- {name: c, model: ssd, profile: 2080ti, size: 1MiB, slo: 1s, arrivals: {trace: {file: azure-7d, column: bursty, peak: 5}}}\n",
		"c.yaml": "machines:\n- {cpu: 4, memory: 8GiB}\n",
		"p.csv":  "model,cpu_threads,gpu_sm_pct,batch,latency_ms\nm,1,0,1,10\nm,1,0,8,30\nm,16,0,8,3\n",
		"t.csv":  "second,only\n0,3\n1,5\n",
		"r.csv":  "time\n0\n1\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := load(t, filepath.Join(dir, "s.yaml"), Overrides{})
	a, b := s.Functions[0], s.Functions[1]
	if s.Name != "s" || s.Cluster.Name != "c" || a.Peak != 10 || b.Peak != 2.0/60 || b.Times.Spread() != 0 || a.Times.Spread() == 0 || s.Duration != 7*24*time.Hour {
		t.Errorf("%+v", s)
	}
	if len(a.Times.Configs()) != 3 {
		t.Errorf("%v", a.Times.Configs())
	}
}

// The classic watchdog of OpenFaaS+ starts a process for each request; no other system does.
func TestFork(t *testing.T) {
	const text = `
kind: max-rps
cluster: testbed
duration: 1m
fork: 50ms
functions:
  - {name: a, model: resnet-50, size: 98MiB, slo: 200ms, arrivals: {constant: 5}}
`
	exec := func(overrides Overrides, name string) time.Duration {
		s, err := Parse("forking", []byte(text), "", overrides)
		if err != nil {
			t.Fatal(err)
		}
		system, err := baselines.ByName(name)
		if err != nil {
			t.Fatal(err)
		}
		setup, err := s.Setup(system, 1, 1)
		if err != nil {
			t.Fatal(err)
		}
		f := setup.Functions[0]
		for _, c := range f.Times.Configs() {
			if c.Batch == 1 && c.CPU == 2000 && c.GPU == 10 {
				d, _ := f.Times.Exec(c, 1)
				return d
			}
		}
		t.Fatalf("%s has no plain share", name)
		return 0
	}
	plain := exec(Overrides{}, systems.INFless)
	if got := exec(Overrides{}, baselines.OpenFaaS); got != plain+50*time.Millisecond {
		t.Errorf("a request takes %v, without a fork %v", got, plain)
	}
	if got := exec(Overrides{Fork: time.Second}, baselines.OpenFaaS); got != plain+time.Second {
		t.Errorf("with the flag a request takes %v, without a fork %v", got, plain)
	}
}
