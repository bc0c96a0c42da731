package scaling

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

var rewrite = flag.Bool("rewrite", false, "write what the scenarios print into testdata")

// world is a cluster that carries out plans at once: stopped instances are gone and
// started ones ready at the next tick.
type world struct {
	engine    *Engine
	now       time.Time
	nodes     []cluster.Node
	functions []*Function
	keepAlive map[string]time.Duration
	parkAfter map[string]time.Duration
	// largest is the largest batch that a function's instances can take.
	largest  map[string]int
	active   map[string]time.Time
	cold     map[cluster.InstanceID]time.Time
	coldTime time.Duration
	next     int
}

var epoch = time.Unix(1_000_000, 0).UTC()

func newWorld(s Settings) *world {
	return &world{
		engine: New(s), now: epoch, keepAlive: map[string]time.Duration{}, parkAfter: map[string]time.Duration{}, largest: map[string]int{},
		active: map[string]time.Time{}, cold: map[cluster.InstanceID]time.Time{}, coldTime: time.Second,
	}
}

func (w *world) function(name string) *Function {
	for _, f := range w.functions {
		if f.Name == name {
			return f
		}
	}
	f := &Function{Name: name, Revision: 1, ScaleToZero: true}
	w.functions = append(w.functions, f)
	w.keepAlive[name] = 300 * time.Second
	return f
}

// settle brings the functions' and nodes' state to now.
func (w *world) settle() {
	for _, f := range w.functions {
		if f.Rate > 0 || f.Waiting > 0 {
			w.active[f.Name] = w.now
		}
		f.RetireAt, f.ParkAt = w.active[f.Name].Add(w.keepAlive[f.Name]), time.Time{}
		if after := w.parkAfter[f.Name]; after > 0 && f.Rate == 0 && f.Waiting == 0 {
			f.ParkAt = w.active[f.Name].Add(after)
		}
		for i := range f.Instances {
			in := &f.Instances[i]
			if in.State == cluster.Starting && !w.now.Before(w.cold[in.ID]) {
				in.State = cluster.Ready
			}
			switch busy := f.Rate > 0 || f.Waiting > 0; {
			case busy || in.State != cluster.Ready:
				in.IdleSince = time.Time{}
			case in.IdleSince.IsZero():
				in.IdleSince = w.now
			}
		}
	}
	for _, f := range w.functions {
		for i := range f.Shadows {
			if s := &f.Shadows[i]; s.State == cluster.Starting && !w.now.Before(w.cold[s.ID]) {
				s.State = cluster.Ready
			}
		}
	}
	for i := range w.nodes {
		w.nodes[i].Clear()
		for _, f := range w.functions {
			for _, in := range slices.Concat(f.Instances, f.Shadows) {
				for node, part := range cluster.Over(in.Node, in.Nodes, in.Holds()) {
					if node == w.nodes[i].Name {
						w.nodes[i].Hold(part, in.Device)
					}
				}
			}
		}
	}
}

// scale runs the engine once and carries out its plan, stops first.
func (w *world) scale() Plan {
	w.settle()
	functions := make([]Function, 0, len(w.functions))
	for _, f := range w.functions {
		functions = append(functions, *f)
	}
	plan := w.engine.Scale(w.now, functions, w.nodes)
	for _, s := range plan.Stop {
		f := w.function(s.Function)
		is := func(in Running) bool { return in.ID == s.ID }
		f.Instances, f.Shadows = slices.DeleteFunc(slices.Clone(f.Instances), is), slices.DeleteFunc(slices.Clone(f.Shadows), is)
	}
	for _, r := range plan.Resize {
		f := w.function(r.Function)
		f.Instances = slices.Clone(f.Instances)
		i := slices.IndexFunc(f.Instances, func(in Running) bool { return in.ID == r.ID })
		f.Instances[i].Config, f.Instances[i].Exec, f.Instances[i].Mean = r.Config, r.Exec, r.Mean
	}
	w.parks(plan)
	for _, x := range plan.Pair {
		f := w.function(x.Function)
		f.Shadows = slices.Clone(f.Shadows)
		f.Shadows[slices.IndexFunc(f.Shadows, func(in Running) bool { return in.ID == x.ID })].Body = x.Body
	}
	for _, s := range plan.Start {
		w.next++
		id := cluster.InstanceID(fmt.Sprintf("i%d", w.next))
		f := w.function(s.Function)
		if s.Role == cluster.Shadow {
			f.Shadows = append(f.Shadows, Running{ID: id, Node: s.Node, Artefact: s.Artefact, Config: s.Config, Revision: s.Revision, State: cluster.Starting, Role: s.Role, Part: s.Part, Body: s.Body})
			w.cold[id] = w.now.Add(w.coldTime)
			continue
		}
		f.Instances = append(f.Instances, Running{ID: id, Node: s.Node, Nodes: s.Nodes, Device: s.Device, Artefact: s.Artefact, Config: s.Config, Exec: s.Exec, Mean: s.Mean, Revision: s.Revision, State: cluster.Starting, Largest: w.largest[s.Function], Paired: len(f.Pairings) > 0})
		w.cold[id] = w.now.Add(w.coldTime)
	}
	return plan
}

// print writes a plan, one line per action. Started instances have the names that
// scale gave them.
func (w *world) print(plan Plan) string {
	var b strings.Builder
	at := fmt.Sprintf("%v ", w.now.Sub(epoch))
	for _, s := range plan.Stop {
		fmt.Fprintf(&b, "%sstop %s %s: %s\n", at, s.Function, s.ID, s.Why)
	}
	for _, r := range plan.Resize {
		fmt.Fprintf(&b, "%sresize %s %s to %v\n", at, r.Function, r.ID, r.Config)
	}
	for _, x := range plan.Park {
		fmt.Fprintf(&b, "%spark %s %s\n", at, x.Function, x.ID)
	}
	for _, x := range plan.Unpark {
		fmt.Fprintf(&b, "%sunpark %s %s as %v", at, x.Function, x.ID, x.Config)
		if len(x.After) > 0 {
			fmt.Fprintf(&b, " after %v", x.After)
		}
		b.WriteString("\n")
	}
	for _, x := range plan.Pair {
		fmt.Fprintf(&b, "%spair %s %s with %s\n", at, x.Function, x.ID, x.Body)
	}
	for i, s := range plan.Start {
		fmt.Fprintf(&b, "%sstart %s i%d %v on %s", at, s.Function, w.next-len(plan.Start)+i+1, s.Config, on(s.Node, s.Nodes))
		if s.Role == cluster.Shadow {
			fmt.Fprintf(&b, " with %s for %s", s.Part, s.Body)
		}
		if len(s.After) > 0 {
			fmt.Fprintf(&b, " after %v", s.After)
		}
		if s.Succeeds != "" {
			fmt.Fprintf(&b, " with %dm beside %s", s.Begins, s.Succeeds)
		}
		b.WriteString("\n")
	}
	for _, u := range plan.Unplaced {
		fmt.Fprintf(&b, "%sunplaced %s: %s\n", at, u.Function, u.Explanation)
	}
	return b.String()
}

// on names a node, or those of a set's members.
func on(node string, nodes []string) string {
	if nodes == nil {
		return node
	}
	return strings.Join(nodes, "+")
}

// do carries out one command of a scenario:
//
//	node NAME cpu=2000 gpu=0 memory=8000 type=x (memory in MiB)
//	function NAME slo=50ms min=0 max=0 keepalive=300s park=0s revision=1 largest=0 queue=late|instance zero=yes|no failed=no|yes nodes=a,b
//	config NAME b=4 cpu=1000 gpu=0 memory=100 exec=2ms parts=0 concurrency=0
//	pairing NAME part=0:3 cpu=1000 b=8 exec=50ms concurrency=2 own=1000 memory=50 shared=yes|no beside=no|yes whole=10+300 shadow=10+20 loading=16ms shadowloading=11ms
//	shadow NAME ID                              (of the first pairing, on the first node)
//	load NAME rate=100 waiting=0
//	prewarm NAME in=10s for=60s
//	off NAME                                    (no pairings any more)
//	suspect NAME ID back=no|yes                 (no connection to an instance)
//	restart                                     (a new engine)
//	kill NAME [ID]
//	tick 1s [times]                             (advance, then scale)
//	instances                                   (print them)
func (w *world) do(t *testing.T, line string) string {
	words := strings.Fields(line)
	keys := arguments{t, line, map[string]string{}}
	for _, word := range words[1:] {
		if k, v, ok := strings.Cut(word, "="); ok {
			keys.values[k] = v
		}
	}
	switch words[0] {
	case "node":
		w.nodes = append(w.nodes, node(words[1], keys.int("cpu", 0), keys.int("gpu", 0), int64(keys.int("memory", 8000))<<20))
		w.nodes[len(w.nodes)-1].Type = keys.values["type"]
	case "function":
		f := w.function(words[1])
		f.SLO = keys.duration("slo", f.SLO)
		f.Min, f.Max = keys.int("min", f.Min), keys.int("max", f.Max)
		f.Revision = uint64(keys.int("revision", int(f.Revision)))
		w.largest[f.Name] = keys.int("largest", w.largest[f.Name])
		w.keepAlive[f.Name] = keys.duration("keepalive", w.keepAlive[f.Name])
		w.parkAfter[f.Name] = keys.duration("park", w.parkAfter[f.Name])
		f.ScaleToZero, f.NoShadows = keys.values["zero"] != "no", keys.values["failed"] == "yes"
		if on, bound := keys.values["nodes"]; bound {
			f.Nodes = strings.FieldsFunc(on, func(r rune) bool { return r == ',' })
		}
		if keys.values["queue"] == "late" {
			f.Queue = capacity.LateBound
		}
	case "config":
		f := w.function(words[1])
		c := config(keys.int("b", 1), keys.int("cpu", 1000), keys.int("gpu", 0), keys.duration("exec", 0))
		c.Config.Memory = int64(keys.int("memory", 100)) << 20
		c.Config.Parts, c.Config.Concurrency = keys.int("parts", 0), keys.int("concurrency", 0)
		f.Configs = append(f.Configs, c)
	case "load":
		f := w.function(words[1])
		f.Rate, f.Waiting = float64(keys.int("rate", 0)), keys.int("waiting", 0)
	case "prewarm":
		f := w.function(words[1])
		f.PreWarmAt = w.now.Add(keys.duration("in", 0))
		w.active[f.Name] = f.PreWarmAt
		w.keepAlive[f.Name] = keys.duration("for", 0)
	case "pairing":
		f := w.function(words[1])
		own := config(keys.int("b", 1), keys.int("own", 1000), 0, 0).Config
		own.Memory = int64(keys.int("memory", 50)) << 20
		c := config(keys.int("b", 1), keys.int("cpu", 1000), 0, keys.duration("exec", 0))
		c.Config.Concurrency = keys.int("concurrency", 0)
		f.Pairings = append(f.Pairings, Pairing{
			CPU: c.Config.CPU, Part: keys.values["part"], Config: own, Pair: []capacity.Candidate{c}, Whole: keys.footprint("whole", "loading"), Shadow: keys.footprint("shadow", "shadowloading"),
		})
		f.SharedWeights, f.ShadowsBeside = keys.values["shared"] == "yes", keys.values["beside"] == "yes"
	case "shadow":
		f := w.function(words[1])
		own := f.Pairings[0].Config
		w.next++
		f.Shadows = append(f.Shadows, Running{ID: cluster.InstanceID(fmt.Sprintf("i%d", w.next)), Node: w.nodes[0].Name, Config: own, Revision: f.Revision, State: cluster.Ready, Role: cluster.Shadow, Part: f.Pairings[0].Part, Body: cluster.InstanceID(words[2])})
	case "kill":
		f := w.function(words[1])
		f.Instances = slices.DeleteFunc(slices.Clone(f.Instances), func(in Running) bool { return len(words) < 3 || string(in.ID) == words[2] })
	case "restart":
		w.engine = New(w.engine.settings)
	case "off":
		w.function(words[1]).Pairings = nil
	case "suspect":
		f := w.function(words[1])
		f.Instances = slices.Clone(f.Instances)
		at := slices.IndexFunc(f.Instances, func(in Running) bool { return string(in.ID) == words[2] })
		f.Instances[at].State = map[bool]cluster.State{true: cluster.Stopping, false: cluster.Ready}[keys.values["back"] != "yes"]
	case "instances":
		return w.instances()
	case "tick":
		step, err := time.ParseDuration(words[1])
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		times := 1
		if len(words) > 2 {
			times, _ = strconv.Atoi(words[2])
		}
		out := ""
		for range times {
			w.now = w.now.Add(step)
			out += w.print(w.scale())
		}
		return cmp.Or(out, "nothing to do\n")
	default:
		t.Fatalf("unknown command: %s", line)
	}
	return ""
}

func (w *world) instances() string {
	var b strings.Builder
	for _, f := range w.functions {
		for _, in := range f.Shadows {
			fmt.Fprintf(&b, "%s %s revision %d %v on %s with %s for %s\n", f.Name, in.ID, in.Revision, in.Config, in.Node, in.Part, in.Body)
		}
		for _, in := range f.Instances {
			fmt.Fprintf(&b, "%s %s revision %d %v on %s%s\n", f.Name, in.ID, in.Revision, in.Config, on(in.Node, in.Nodes), map[bool]string{true: ", parked"}[in.Parked])
		}
	}
	return cmp.Or(b.String(), "none\n")
}

// arguments are a command's key=value pairs.
type arguments struct {
	t      *testing.T
	line   string
	values map[string]string
}

func (a arguments) int(key string, otherwise int) int {
	v, ok := a.values[key]
	if !ok {
		return otherwise
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		a.t.Fatalf("%s: %v", a.line, err)
	}
	return n
}

// footprint reads MiB of an instance's own and of its weights, as in 10+300, and a loading time.
func (a arguments) footprint(key, loading string) (f Footprint) {
	if text, ok := a.values[key]; ok {
		if _, err := fmt.Sscanf(text, "%d+%d", &f.Own, &f.Weights); err != nil {
			a.t.Fatalf("%s: %v", a.line, err)
		}
	}
	return Footprint{Own: f.Own << 20, Weights: f.Weights << 20, Loading: a.duration(loading, 0)}
}

func (a arguments) duration(key string, otherwise time.Duration) time.Duration {
	v, ok := a.values[key]
	if !ok {
		return otherwise
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		a.t.Fatalf("%s: %v", a.line, err)
	}
	return d
}

// TestScenarios runs testdata/*.txt. A scenario is blocks of commands, each
// followed by a line of four dashes, what the commands print, and an empty
// line; # begins a comment. A first command "faithful" sets the paper's
// options and no headroom, "greedy" Algorithm 1 for a provider. With -rewrite, what is printed is written back.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { runScenario(t, file) })
	}
}

func runScenario(t *testing.T, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(DefaultSettings())
	var out, got, want strings.Builder
	expecting := false
	check := func() {
		if expecting && got.String() != want.String() && !*rewrite {
			t.Errorf("%s:\ngot\n%swant\n%s", file, &got, &want)
		}
		out.WriteString(got.String())
		got.Reset()
		want.Reset()
		expecting = false
	}
	for line := range strings.Lines(string(text)) {
		switch trimmed := strings.TrimSpace(line); {
		case trimmed == "----":
			expecting = true
			out.WriteString(line)
		case expecting && trimmed != "":
			want.WriteString(line)
		default:
			check()
			out.WriteString(line)
			if trimmed == "faithful" || trimmed == "greedy" {
				s := DefaultSettings()
				if s.Options = capacity.Greedy(); trimmed == "faithful" {
					s.Options, s.Headroom = capacity.Faithful(), 0
				}
				w = newWorld(s)
			} else if trimmed != "" && !strings.HasPrefix(trimmed, "#") {
				got.WriteString(w.do(t, trimmed))
			}
		}
	}
	check()
	if *rewrite {
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
