package e2e

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/model/onnxpb"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// wide writes the bundle wide:latest, a chain of products whose weights are some 190 MiB.
func (p *place) wide(t *testing.T) {
	t.Helper()
	const size, products = 4096, 3
	random := rand.New(rand.NewPCG(1, 1))
	matrix := func(name string, rows, columns int64) *onnxpb.TensorProto {
		m := zeros(name, rows, columns)
		scale := float32(math.Sqrt(6 / float64(rows)))
		for i := 0; i < len(m.RawData); i += 4 {
			binary.LittleEndian.PutUint32(m.RawData[i:], math.Float32bits(scale*(2*random.Float32()-1)))
		}
		return m
	}
	p.bundle(t, "wide:latest", edited(t, func(g *onnxpb.GraphProto) {
		at, out := g.Node[0].Input[0], g.Node[0].Output[0]
		fix(g.Input[0], 1, width)
		fix(g.Output[0], 1, width)
		g.Node = nil
		product := func(name string, rows, columns int64, into string) {
			g.Initializer = append(g.Initializer, matrix(name, rows, columns))
			g.Node = append(g.Node, node("MatMul", into, at, name))
			at = into
		}
		product("widen", width, size, "wide")
		for i := range products {
			product(fmt.Sprintf("turn%d", i), size, size, fmt.Sprintf("turned%d", i))
			g.Node = append(g.Node, node("Relu", at+"+", at))
			at += "+"
		}
		product("narrow", size, width, out)
	}))
}

// workers lists the processes of members of a function that are no masters.
func (p *place) workers(function string) (pids []int) {
	for _, pid := range p.instancesOf(function) {
		all := splitArguments([]byte(readAll(fmt.Sprintf("/proc/%d/cmdline", pid))))
		for i, a := range all {
			if string(a) == "--part" && i+1 < len(all) && string(all[i+1]) != "0" {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// removeWorker ends a worker: a pod is deleted at once, a process is killed.
func (p *place) removeWorker(t *testing.T, function string) {
	t.Helper()
	if onCluster == nil {
		if err := syscall.Kill(p.workers(function)[0], syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		return
	}
	const which = "faas_function=%s,faas-infer.dev/member=worker"
	name, err := onCluster.kubectl("get", "pods", "-n", defaultNamespace, "-l", fmt.Sprintf(which, function), "-o", "jsonpath={.items[0].metadata.name}")
	if err == nil {
		_, err = onCluster.kubectl("delete", "pod", "-n", defaultNamespace, name, "--grace-period=0", "--force", "--wait=false")
	}
	if err != nil {
		t.Fatal(err)
	}
}

// partLimit is the memory limit of the instances of the model wide's parts. A process of this machine
// maps what was prepared; a pod cuts and loads its part by itself, which takes 2.7 times its size. The
// whole model fits into neither.
func partLimit() string {
	if onCluster != nil {
		return "304Mi"
	}
	return "176Mi"
}

// cutFunction deploys the model wide so that it is cut, or not.
func cutFunction(name, how, memory string) types.FunctionDeployment {
	f := function(name, "wide:latest", "10s", "infer.partition", how, "infer.max-batch", "1", "infer.keep-alive", "3s")
	f.Limits = &types.FunctionResources{Memory: memory}
	return f
}

// A model that fits into no instance is refused, unless it may be cut. Then several instances
// answer as the whole model does, also while one of them is removed under load, and all of them
// start and go together. None exceeds its memory.
func TestALargeModelIsCut(t *testing.T) {
	providerTests.takeHere(t)
	p := newPlace(t)
	p.wide(t)
	d := p.provider(t, race(t))
	refused := d.put(t, http.MethodPost, cutFunction("cut", "off", "176Mi"))
	if refused.status != http.StatusBadRequest || !strings.Contains(refused.body, `limits.memory is "176Mi": the model has 19`) {
		t.Errorf("off: %d %s", refused.status, refused.body)
	}
	if refused := d.put(t, http.MethodPost, cutFunction("cut", "auto", "90Mi")); refused.status != http.StatusBadRequest ||
		!strings.Contains(refused.body, `limits.memory is "90Mi": an instance needs 96 MiB beside its part`) {
		t.Errorf("no room for a part: %d %s", refused.status, refused.body)
	}
	began := time.Now()
	d.deploy(t, cutFunction("cut", "auto", partLimit()))
	d.deploy(t, function("whole", "wide:latest", "10s", "infer.max-batch", "1"))
	in := tensor.Tensor{Name: "input", Type: tensor.FP32, Shape: []int64{1, width}, Data: payload(1)}
	ask := func(name string) (out []float32) {
		t.Helper()
		var err error
		d.await(t, 5*time.Minute, "an answer of "+name, func() bool {
			out, err = askBinary(d.own, d.function(name), in)
			return err == nil
		})
		return out
	}
	want := ask("whole")
	if off := farFrom(want, ask("cut")); off != nil {
		t.Error(off)
	}
	t.Logf("the parts answer after %v", time.Since(began))
	s := d.status(t, "cut")
	if plan := (*s.Annotations)["com.openfaas.infer.plan"]; !strings.Contains(plan, "instances with") || s.AvailableReplicas != 1 {
		t.Errorf("%d replicas with the plan %q", s.AvailableReplicas, plan)
	}
	p.losesAWorker(t, d, in, want)
	p.withinMemory(t, d, "cut")
	d.await(t, patience, "the set to go when it is idle", func() bool { return len(p.instancesOf("cut")) == 0 })
	if off := farFrom(want, ask("cut")); off != nil {
		t.Errorf("after it woke: %v", off)
	}
	d.remove(t, "cut")
	d.await(t, patience, "the end of all members", func() bool { return len(p.instancesOf("cut")) == 0 && onCluster.left(t, "cut") == "" })
	d.stop(t)
	p.nothingLeft(t)
}

// farFrom returns an error if an answer differs from the one that is wanted by more than parts may.
func farFrom(want, got []float32) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d elements, want %d", len(got), len(want))
	}
	largest, off := 0.0, 0.0
	for i := range want {
		largest, off = max(largest, math.Abs(float64(want[i]))), max(off, math.Abs(float64(want[i]-got[i])))
	}
	if !(off <= 1e-5*largest) {
		return fmt.Errorf("the parts' answer differs by %v of %v", off, largest)
	}
	return nil
}

// losesAWorker removes a worker under load. Every request gets the right answer, or a few are told
// that an instance was lost.
func (p *place) losesAWorker(t *testing.T, d *daemon, in tensor.Tensor, want []float32) {
	t.Helper()
	body, length, err := load.EncodeBinary([]tensor.Tensor{in})
	if err != nil {
		t.Fatal(err)
	}
	before := p.workers("cut")
	if len(before) == 0 {
		t.Fatal("no workers")
	}
	const rate, seconds = 8, 8
	o := load.Options{Duration: seconds * time.Second, Targets: []load.Target{{
		Name: "cut", URL: d.function("cut"), Rate: rate, Header: http.Header{"Content-Type": {"application/octet-stream"}, load.HeaderLength: {strconv.Itoa(length)}},
		Body: func(int) []byte { return body },
		Verify: func(_ int, answer []byte) error {
			return farFrom(want, floats(answer[max(0, len(answer)-4*len(want)):]))
		},
	}}}
	// On a slow machine another worker takes longer than one load. Without load the set goes.
	const rounds = 5
	for o.Seed = 1; ; o.Seed++ {
		done := beside(t, o)
		if o.Seed == 1 {
			p.removeWorker(t, "cut")
		}
		r := (<-done)[0]
		t.Logf("of %d requests %s; p50 %v, max %v", r.Requests, outcome(r), r.Latency.P50, r.Latency.Max)
		wantAnswered(t, r, http.StatusBadGateway, http.StatusServiceUnavailable)
		wantFewRefused(t, r, 1)
		now := p.workers("cut")
		if len(now) == len(before) && !slices.Equal(now, before) {
			return
		}
		if o.Seed == rounds {
			t.Fatalf("workers %v, they were %v", now, before)
		}
	}
}

// withinMemory fails the test if a member of a function was killed because it exceeded its memory. It
// logs what members took.
func (p *place) withinMemory(t *testing.T, d *daemon, function string) {
	t.Helper()
	for _, pid := range p.instancesOf(function) {
		for line := range strings.Lines(readAll(fmt.Sprintf("/proc/%d/status", pid))) {
			if strings.HasPrefix(line, "VmHWM") {
				t.Logf("member %d of limit %s: %s", pid, partLimit(), strings.Join(strings.Fields(line), " "))
			}
		}
	}
	if strings.Contains(d.logText(), "out of memory") {
		t.Error("a member was out of memory")
	}
}
