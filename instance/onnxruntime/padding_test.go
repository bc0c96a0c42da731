package onnxruntime

import (
	"context"
	"encoding/json"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/model/ragged"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// Rows are padded only in models whose answers are the same then.
func TestPadding(t *testing.T) {
	inputs := value("input", "input_ids", int64Code, "n", "s") + value("input", "attention_mask", int64Code, "n", "s")
	cast := func(in, out string) string {
		return `node { op_type: "Cast" input: "` + in + `" output: "` + out + `" attribute { name: "to" type: INT i: 1 } } `
	}
	sum := func(in, out string) string {
		return `initializer { name: "axes_` + out + `" data_type: 7 dims: 1 int64_data: 1 } node { op_type: "ReduceSum" input: ["` + in + `", "axes_` + out + `"] output: "` + out +
			`" attribute { name: "keepdims" type: INT i: 0 } } `
	}
	masked := cast("input_ids", "x") + cast("attention_mask", "m") + `node { op_type: "Mul" input: ["x", "m"] output: "k" } `
	for _, c := range []struct {
		name, graph string
		axes        [][]int // nil for a model that is not padded
		why         string
	}{
		{"sum of what the mask keeps", masked + sum("k", "y") + inputs + value("output", "y", float, "n"), [][]int{{}}, ""},
		{"an element for each", masked + inputs + value("output", "k", float, "n", "s"), [][]int{{1}}, ""},
		{"pairs of elements", masked + `initializer { name: "one" data_type: 7 dims: 1 int64_data: 1 } initializer { name: "two" data_type: 7 dims: 1 int64_data: 2 } ` +
			`node { op_type: "Unsqueeze" input: ["k", "one"] output: "a" } node { op_type: "Unsqueeze" input: ["k", "two"] output: "b" } node { op_type: "Mul" input: ["a", "b"] output: "y" } ` +
			inputs + value("output", "y", float, "n", "s", "s"), [][]int{{1, 2}}, ""},
		{"the mean over all", masked + `node { op_type: "ReduceMean" input: "x" output: "y" attribute { name: "axes" type: INTS ints: 1 } attribute { name: "keepdims" type: INT i: 0 } } ` +
			inputs + value("output", "y", float, "n") + value("output", "k", float, "n", "s"), nil, `filling a row up changes its answer: output "y"`},
		{"the last element", masked + `initializer { name: "last" data_type: 7 int64_data: -1 } node { op_type: "Gather" input: ["x", "last"] output: "y" attribute { name: "axis" type: INT i: 1 } } ` +
			inputs + value("output", "y", float, "n") + value("output", "k", float, "n", "s"), nil, `output "y"`},
		{"twice the length", masked + `node { op_type: "Concat" input: ["k", "k"] output: "y" attribute { name: "axis" type: INT i: 1 } } ` +
			inputs + value("output", "y", float, "n", "d"), nil, "cannot be cut to the length of a row"},
		{"no mask", cast("input_ids", "y") + value("input", "input_ids", int64Code, "n", "s") + value("output", "y", float, "n", "s"), nil, "no input is a mask"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := adaptFile(modelFile(t, c.graph), PrepareOptions{}, true)
			if err != nil {
				t.Fatal(err)
			}
			s := f.signature
			if s.Unbatched != "" || (s.Padding != nil) != (c.axes != nil) || (s.Unpadded == "") != (c.why == "") || !strings.Contains(s.Unpadded, c.why) {
				t.Fatalf("unbatched %q, padding %v, unpadded %q, want %q", s.Unbatched, s.Padding, s.Unpadded, c.why)
			}
			if s.Padding != nil && !slices.EqualFunc(s.Padding.Axes, c.axes, slices.Equal) {
				t.Errorf("axes %v, want %v", s.Padding.Axes, c.axes)
			}
		})
	}
}

// tokenRequest is a request of rows of token ids of a length.
func tokenRequest(random *rand.Rand, inputs []string, rows, length int) frame.Request {
	var all []object
	for _, name := range inputs {
		data := make([]int, rows*length)
		for i := range data {
			switch {
			case strings.HasSuffix(name, "mask"):
				data[i] = 1
			case name == "input_ids":
				data[i] = random.IntN(100)
			}
		}
		all = append(all, object{"name": name, "datatype": "INT64", "shape": []int{rows, length}, "data": data})
	}
	return post("/v2/models/tiny/infer", object{"inputs": all})
}

// Requests of token ids get the answers that they get alone, whatever lengths run with them.
func TestPaddedAnswersAreThoseOfRowsAlone(t *testing.T) {
	for name, file := range map[string]string{"tiny": filepath.Join(textData, "tiny.onnx"), "minilm": zooFile(t, "minilm")} {
		t.Run(name, func(t *testing.T) {
			p, err := Prepare(file, t.TempDir(), PrepareOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if p.Padding == nil {
				t.Fatalf("not padded: %s", p.Lengths())
			}
			engine := mustOpen(t, Options{Prepared: p.Dir})
			var inputs []string
			for _, in := range engine.Inputs() {
				inputs = append(inputs, in.Name)
			}
			open := func(e instance.Engine) *instance.Server {
				s, err := instance.NewServer(e, instance.Options{Name: "tiny", MaxBatch: 8, Logger: zerolog.Nop()})
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			random := rand.New(rand.NewPCG(1, 2))
			var requests []frame.Request
			for range 24 {
				requests = append(requests, tokenRequest(random, inputs, 1+random.IntN(3), 1+random.IntN(40)))
			}
			counted := &countingEngine{Engine: engine}
			together, _ := open(counted).HandleBatch(context.Background(), requests)
			if counted.runs >= len(requests) || counted.padded == 0 {
				t.Errorf("%d runs for %d requests, %d rows padded", counted.runs, len(requests), counted.padded)
			}
			alone := open(plainEngine{engine})
			largest := 0.0
			for i, r := range requests {
				own, _ := alone.HandleBatch(context.Background(), []frame.Request{r})
				got, want := answerOf(t, together[i]), answerOf(t, own[0])
				if len(got.Data) == 0 || !slices.Equal(got.Shape, want.Shape) || len(got.Data) != len(want.Data) {
					t.Fatalf("request %d: shape %v, want %v", i, got.Shape, want.Shape)
				}
				for at := range got.Data {
					largest = max(largest, math.Abs(got.Data[at]-want.Data[at]))
				}
			}
			t.Logf("%d rows padded in %d runs; answers differ by %g at most", counted.padded, counted.runs, largest)
			if largest > 1e-5 {
				t.Errorf("answers differ by %g", largest)
			}
		})
	}
}

// plainEngine is an engine that pads no rows.
type plainEngine struct{ *Engine }

func (plainEngine) Padding() *ragged.Padding { return nil }

// countingEngine counts its runs.
type countingEngine struct {
	*Engine
	// runs is their number, padded the number of rows that were filled up.
	runs, padded int
}

func (e *countingEngine) Run(ctx context.Context, rows int, inputs []tensor.Tensor) ([]tensor.Tensor, error) {
	e.runs++
	for at := range rows {
		mask := slices.IndexFunc(inputs, func(t tensor.Tensor) bool { return t.Name == "attention_mask" })
		own := inputs[mask].Data[at*len(inputs[mask].Data)/rows : (at+1)*len(inputs[mask].Data)/rows]
		if own[len(own)-8] == 0 {
			e.padded++
		}
	}
	return e.Engine.Run(ctx, rows, inputs)
}

type decoded struct {
	Shape []int
	Data  []float64
}

func answerOf(t *testing.T, r frame.Response) decoded {
	t.Helper()
	var answer struct{ Outputs []decoded }
	if err := json.Unmarshal(r.Body, &answer); err != nil || r.Status != 200 || len(answer.Outputs) == 0 {
		t.Fatalf("%d %.300s: %v", r.Status, r.Body, err)
	}
	return answer.Outputs[0]
}

// BenchmarkTokenIDs measures the processor time of a request among 16 of 8 to 40 tokens, padded and with runs of one length
// only.
func BenchmarkTokenIDs(b *testing.B) {
	p, err := Prepare(zooFile(b, "minilm"), b.TempDir(), PrepareOptions{})
	if err != nil {
		b.Fatal(err)
	}
	engine := mustOpen(b, Options{Prepared: p.Dir})
	random := rand.New(rand.NewPCG(1, 2))
	var requests []frame.Request
	for range 16 {
		requests = append(requests, tokenRequest(random, []string{"input_ids", "attention_mask"}, 1, 8+random.IntN(33)))
	}
	for name, e := range map[string]instance.Engine{"padded": engine, "apart": plainEngine{engine}} {
		s, err := instance.NewServer(e, instance.Options{Name: "tiny", MaxBatch: 16, Logger: zerolog.Nop()})
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			began := usedTime()
			for b.Loop() {
				s.HandleBatch(context.Background(), requests)
			}
			b.ReportMetric(float64((usedTime()-began).Microseconds())/float64(b.N*len(requests))/1e3, "cpu-ms/request")
		})
	}
}
