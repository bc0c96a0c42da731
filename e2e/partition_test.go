package e2e

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/types"

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

// workers lists the processes of members that are no masters.
func (p *place) workers() []int {
	return p.matching(func(_ int, arguments [][]byte) bool {
		for i, a := range arguments {
			if string(a) == "--part" && i+1 < len(arguments) {
				return string(arguments[i+1]) != "0"
			}
		}
		return false
	})
}

// A model that fits into no instance is refused, unless it may be cut. Then several instances
// answer as the whole model does, also after one of them was killed, and all of them go
// together.
func TestALargeModelIsCut(t *testing.T) {
	if onCluster != nil {
		t.Skip("pods load their parts unprepared, which takes more memory")
	}
	p := newPlace(t)
	p.wide(t)
	d := p.provider(t, race(t))
	limited := func(name, how string) types.FunctionDeployment {
		f := function(name, "wide:latest", "10s", "infer.partition", how, "infer.max-batch", "1")
		f.Limits = &types.FunctionResources{Memory: "176Mi"}
		return f
	}
	refused := d.put(t, http.MethodPost, limited("cut", "off"))
	if refused.status != http.StatusBadRequest || !strings.Contains(refused.body, `limits.memory is "176Mi": the model has 19`) {
		t.Errorf("off: %d %s", refused.status, refused.body)
	}
	small := limited("cut", "auto")
	small.Limits.Memory = "90Mi"
	if refused := d.put(t, http.MethodPost, small); refused.status != http.StatusBadRequest || !strings.Contains(refused.body, `limits.memory is "90Mi": an instance needs 96 MiB beside its part`) {
		t.Errorf("no room for a part: %d %s", refused.status, refused.body)
	}
	d.deploy(t, limited("cut", "auto"))
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
	want, got := ask("whole"), ask("cut")
	alike := func(got []float32) {
		t.Helper()
		largest, off := 0.0, 0.0
		for i := range want {
			largest, off = max(largest, math.Abs(float64(want[i]))), max(off, math.Abs(float64(want[i]-got[i])))
		}
		if len(got) != len(want) || !(off <= 1e-5*largest) {
			t.Errorf("the parts' answer differs by %v of %v", off, largest)
		}
	}
	alike(got)
	s := d.status(t, "cut")
	if plan := (*s.Annotations)["com.openfaas.infer.plan"]; !strings.Contains(plan, "instances with") || s.AvailableReplicas != 1 {
		t.Errorf("%d replicas with the plan %q", s.AvailableReplicas, plan)
	}
	before := p.workers()
	if len(before) < 2 {
		t.Fatalf("%d workers", len(before))
	}
	if err := syscall.Kill(before[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	alike(ask("cut"))
	if now := p.workers(); len(now) != len(before) || slices.Contains(now, before[0]) {
		t.Errorf("workers %v, they were %v", now, before)
	}
	if a := do(t, client(t), http.MethodDelete, d.url+"/system/functions", []byte(`{"functionName":"cut"}`)); a.status != http.StatusAccepted {
		t.Errorf("delete: %d %s", a.status, a.body)
	}
	d.await(t, patience, "the end of all workers", func() bool { return len(p.workers()) == 0 })
	d.stop(t)
	p.nothingLeft(t)
}
