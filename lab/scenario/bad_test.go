package scenario

import (
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/lab/baselines"
	"github.com/faas-infer/faas-infer/lab/fleet"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// The error for an invalid file names the line, the key, and the fix.
func TestWhatIsWrongIsNamed(t *testing.T) {
	const head = "kind: run\ncluster: testbed\nduration: 1m\n"
	const start = head + "functions:\n- {name: a, model: ssd, size: 29MiB, slo: 200ms, "
	const poisson = "arrivals: {poisson: 10}}\n"
	with := func(arrivals string) string { return start + "arrivals: {" + arrivals + "}}\n" }
	for text, want := range map[string]string{
		"":                                     "x.yaml: the file is empty",
		"kind: run\n":                          "x.yaml:1: cluster: it is missing",
		"kind: walk\n":                         `kind: "walk": it must be one of [max-rps run scale coldstart batch variants accuracy goodput]`,
		head:                                   "functions: it is missing",
		head + "functions: []":                 "functions: the list is empty",
		head + "nme: x\nfunctions: []":         "x.yaml:4: nme: unknown key: the known keys are kind, cluster, functions, about, duration",
		start + "rps: 5, " + poisson:           "x.yaml:5: functions[0].rps: unknown key: the known keys are name, model, slo",
		start + "}\n":                          "functions[0].arrivals: it is missing",
		start + "arrivals: 5}\n":               "functions[0].arrivals: it must be a mapping of keys to values",
		start + "model: x, " + poisson:         "functions[0].model: the key occurs twice",
		start + "max_batch: 0, " + poisson:     `max_batch: "0" is not a whole number from 1`,
		start + "percentile: 0.99, " + poisson: `percentile: "0.99" is not a number from 50 to 99.99`,
		start + "min_instances: 3, max_instances: 2, " + poisson: "min_instances: 3: it must not be more than max_instances, 2",
		start + "spread: -1, " + poisson:                         `spread: "-1" is not a number from 0`,
		start + "profile: absent.csv, " + poisson:                "functions[0].profile: open absent.csv: no such file or directory: name a file, or 2080ti",
		start + "vary: {slo: [200ms]}, " + poisson:               "functions[0].slo: vary has slo too",
		start + "concurrency: 2, " + poisson:                     "functions[0].concurrency: it needs parts",
		start + "parts: [1], " + poisson:                         `parts: "1" is not a whole number from 2 to 64`,
		start + "vary: {load: [0]}, " + poisson:                  `vary.load: "0" is not a number`,

		// Negative rates, and no rates.
		with("poisson: -5"):                               `functions[0].arrivals.poisson: "-5" is not a number from 0 to 1e+07`,
		with("constant: NaN"):                             `arrivals.constant: "NaN" is not a number`,
		with("constant: .inf"):                            `arrivals.constant: ".inf" is not a number`,
		with("gamma: {rate: 5, cv: -1}"):                  `arrivals.gamma.cv: "-1" is not a number from 0.01 to 100`,
		with("gamma: {rate: 5}"):                          "arrivals.gamma.cv: it is missing",
		with("mmpp: [{rate: 5, for: 1s}]"):                "at least two states",
		with("mmpp: [{rate: -5, for: 1s}, {}]"):           `arrivals.mmpp[0].rate: "-5" is not a number`,
		with("mmpp: [{rate: 5, for: 1s}, {rate: 1}]"):     "arrivals.mmpp[1].for: it is missing",
		with("steps: [{for: 1s, from: 5}]"):               "arrivals.steps[0]: a step must have either rate, or from and to",
		with("steps: [{for: 1s, rate: 1, to: 5}]"):        "a step must have either rate, or from and to",
		with("steps: [{for: 1s, rate: -1}]"):              `steps[0].rate: "-1" is not a number`,
		with("steps: []"):                                 "a path of rates needs a segment",
		with("steps: [{for: 1s, rate: 1}], gaps: odd"):    `arrivals.gaps: "odd": it must be poisson or even`,
		with("poisson: 5, constant: 5"):                   "arrivals: 2 processes: it must have one of constant, poisson, gamma, mmpp, steps, trace, timestamps",
		with("normal: 5"):                                 "arrivals.normal: unknown key: the known keys are constant",
		with("trace: {file: azure-7d, peak: 5}"):          `trace azure-7d has no column "": it has sporadic, periodic, bursty`,
		with("trace: {file: azure-7d, column: bursty}"):   "it must have either peak, the requests/s of its highest step, or scale",
		with("trace: {file: absent, column: a, peak: 5}"): `arrivals.trace.file: there is no trace "absent": name a file, or one of azure-7d, osvt-ramp`,
		with("trace: {peak: 5}"):                          "arrivals: the trace has no file: name it here or in the scenario's key “traces”",
		with("trace: {peak: -5}"):                         `trace.peak: "-5" is not a number`,
		with("trace: {column: a, peak: 5}"):               "column, step and group need a file",
		with("timestamps: azure-7d"):                      "trace azure-7d has counts, not times",

		// What cannot be.
		strings.Replace(with("poisson: 5"), "200ms", "100ms", 1):                                                                    "functions[0].slo: 100ms is less than the fastest possible execution of ssd on this cluster: one request takes 125.9ms on 2 cores, 0.557 GiB, 40 % of a GPU and 0.557 GiB of it",
		strings.Replace(with("poisson: 5"), "ssd", "bert", 1):                                                                       `functions[0].model: the profile has no model "bert": it has ["catdog"`,
		strings.Replace(with("poisson: 5"), "29MiB", "40GiB", 1):                                                                    "functions[0]: a fits no node: it needs at least 2 cores, 80.5 GiB, and the largest node, m-1/0, has 16 cores, 64 GiB, 100 % of a GPU and 11 GiB of it",
		strings.Replace(with("poisson: 5"), "size: 29MiB, ", "", 1):                                                                 "functions[0].size: it is missing: give the size of the model's weights",
		strings.Replace(with("poisson: 5"), "slo: 200ms, ", "", 1):                                                                  "functions[0].slo: it is missing",
		strings.Replace(with("poisson: 5"), "testbed", "moon", 1):                                                                   `cluster: there is no cluster "moon": name a file, or one of testbed, large`,
		strings.Replace(with("poisson: 5"), "testbed", "{machines: []}", 1):                                                         "x.yaml:2: cluster.machines: the cluster is empty",
		strings.Replace(with("poisson: 5"), "testbed", "{machines: [{cpu: 1, memory: 4GiB}]}", 1):                                   "a fits no node: it needs at least 2 cores",
		strings.Replace(with("poisson: 5"), "duration: 1m", "warmup: 1m", 1):                                                        "duration: it is missing: say how long to simulate",
		strings.Replace(with("poisson: 5"), "duration: 1m", "duration: 1m\nwarmup: 1m", 1):                                          "warmup: 1m0s: it must be less than the duration, 1m0s",
		strings.Replace(with("poisson: 5"), "duration: 1m", "duration: -1m", 1):                                                     `duration: "-1m" is not a duration such as 200ms, 1.5s, 10m or 7d`,
		strings.Replace(with("poisson: 5"), "duration: 1m", "duration: 1m\npolicies: [best]", 1):                                    `policies: unknown policy "best": it is one of openfaas+, openfaas+4t`,
		strings.Replace(with("poisson: 5"), "duration: 1m", "duration: 1m\ninstances: [5]", 1):                                      "instances: only the kind scale has this key",
		strings.Replace(with("poisson: 5"), "kind: run", "kind: scale", 1):                                                          "instances: it is missing",
		strings.Replace(with("poisson: 5"), "kind: run", "kind: max-rps\ntraces: {file: azure-7d}", 1):                              "traces: only the kinds run, coldstart and batch have this key",
		strings.Replace(with("poisson: 5"), "kind: run", "kind: run\ntraces: {file: azure-7d}", 1):                                  "traces: no function takes its load from them",
		strings.Replace(with("trace: {peak: 1}"), "kind: run", "kind: run\ntraces: {}", 1):                                          "traces.file: it is missing",
		strings.Replace(with("trace: {peak: 1}"), "kind: run", "kind: run\ntraces: {file: azure-7d, columns: [a]}", 1):              `traces.columns: trace azure-7d has no column "a"`,
		strings.Replace(with("trace: {peak: 1}"), "kind: run", "kind: run\ntraces: {file: azure-7d, columns: [bursty, bursty]}", 1): "traces.columns: bursty occurs twice",
		strings.Replace(with("poisson: 5"), "kind: run", "kind: run\ncold_start: {load: 0MiB}", 1):                                  `cold_start.load: "0MiB" is not a size`,
		with("poisson: 5") + "- {name: a, model: ssd, size: 1MiB, slo: 200ms, arrivals: {poisson: 5}}\n":                            "functions[1].name: a occurs twice",
		with("poisson: 5") + "- {name: a b, model: ssd, size: 1MiB, slo: 200ms, arrivals: {poisson: 5}}\n":                          `functions[1].name: "a b" is not a name`,
	} {
		_, err := Parse("x.yaml", []byte(text), "", Overrides{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\ngot  %v\nwant %s", text, err, want)
		}
	}
}

// A load beyond the limit of a process is an error of the run.
func TestALoadThatCannotBe(t *testing.T) {
	s := load(t, "poisson", Overrides{})
	system, err := baselines.ByName(systems.Default)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Setup(system, 1e9, 1); err == nil || !strings.Contains(err.Error(), "poisson: function resnet-50 at 1e+09 times its load: segment 1: a rate of 5e+11") {
		t.Errorf("got %v", err)
	}
	if _, err := s.Setup(system, -1, 1); err == nil || !strings.Contains(err.Error(), "a rate of -500") {
		t.Errorf("got %v", err)
	}
}

// Any file is either read or refused. A file that is read can be set up.
func FuzzParse(f *testing.F) {
	for _, name := range fleet.ScenarioNames() {
		if name == "scale" || name == "traces" || name == "coldstart" { // large, and so slow
			continue
		}
		text, err := fleet.ScenarioText(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	system, err := baselines.ByName(systems.Default)
	if err != nil {
		f.Fatal(err)
	}
	for _, text := range []string{
		"kind: run\ncluster: testbed\ntraces: {file: osvt-ramp, columns: [ssd]}\nfunctions:\n- {name: ssd, size: 1MiB, slo: 1s, arrivals: {trace: {peak: 3}}}\n",
		"kind: scale\ncluster: {machines: [{cpu: 4, memory: 2GiB}]}\ninstances: 5\nfunctions:\n- {name: ssd, size: 1MiB, arrivals: {constant: 3}, vary: {slo: [1s, 2s], load: [1, 2]}}\n",
	} {
		f.Add([]byte(text))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := Parse("f", text, dir, Overrides{})
		if err != nil {
			return
		}
		for _, c := range s.Cases() {
			c.Cluster.Machines = nil // of which there may be many
			out, err := c.Setup(system, 1, c.Seed)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range out.Functions {
				if at, ok := f.Arrivals.Next(); ok && at < 0 {
					t.Fatalf("a request at %v", at)
				}
			}
		}
	})
}
