package strangers

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/e2e/graphs"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/tensor"
)

func float32s(values ...float32) (data []byte) {
	for _, v := range values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	return data
}

func TestVerdicts(t *testing.T) {
	for said, want := range map[string]string{
		`input "x" has the fixed shape [1 4]: no dynamic batch dimension; export the model with a dynamic leading axis`: refused,
		"the operator Foo is unknown":                                              refusedWithoutWay,
		"a GGUF file; faas-infer serves ONNX":                                      refusedWithoutWay,
		"a pickle; run faas-infer model convert":                                   refused,
		"size 17; set com.openfaas.infer.shapes":                                   refused,
		"the model could not be measured: gs  0x0":                                 crashed,
		`image "onnxruntime-sigmoid:latest": sigmoid.onnx; export it with a batch`: refused,
		"instance exited with SIGSEGV":                                             crashed,
	} {
		if got := verdictOf(400, said); got != want {
			t.Errorf("%q is %q and not %q", said, got, want)
		}
	}
	if verdictOf(502, "") != crashed || verdictOf(503, "wait") != unanswered {
		t.Error("502 is a crash and 503 no answer")
	}
}

// A request's letters become sizes, and the annotation has the first of them.
func TestShapes(t *testing.T) {
	f := shipped{shapes: "x:nx3xhxw,state:2xnxh", sizes: [][]int64{{640, 320}, {64, 32}}}
	given, err := f.parse()
	if err != nil {
		t.Fatal(err)
	}
	if want := []int64{graphs.Rows, 3, graphs.Free(0), graphs.Free(1)}; !slices.Equal(given["x"], want) {
		t.Errorf("%v, want %v", given["x"], want)
	}
	if got := f.annotation(given); got != "state:2x1x640,x:1x3x640x320" {
		t.Error(got)
	}
	if _, err := (shipped{shapes: "x:nxh", sizes: [][]int64{{1, 2}}}).parse(); err == nil {
		t.Error("two sizes for one letter are taken")
	}
	for _, w := range packages {
		for _, f := range w.files {
			if given, err := f.parse(); err != nil {
				t.Error(err)
			} else if _, err := tensor.ParseShapes(f.annotation(given)); f.annotate && err != nil {
				t.Errorf("%s: %v", f.file, err)
			}
		}
	}
}

// JSON keeps every element of the types that it can have.
func TestJSON(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var all []tensor.Tensor
	for _, of := range []tensor.Type{tensor.Bool, tensor.Int8, tensor.Uint16, tensor.Int64, tensor.Uint64, tensor.FP32, tensor.FP64, tensor.Bytes} {
		in := graphs.Input{Name: string(of), Type: of, Shape: []int64{3, 4}, Words: []string{"a", "", "ü"}}
		all = append(all, graphs.Request([]graphs.Input{in}, 1, nil, 1, rng)...)
	}
	body, err := encodeJSON(all)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeJSON([]byte(strings.Replace(string(body), `"inputs"`, `"outputs"`, 1)))
	if err != nil || len(got) != len(all) {
		t.Fatalf("%d tensors, %v", len(got), err)
	}
	for i, want := range all {
		if g := got[i]; g.Name != want.Name || g.Type != want.Type || !slices.Equal(g.Shape, want.Shape) || string(g.Data) != string(want.Data) {
			t.Errorf("%+v, want %+v", g, want)
		}
	}
	if !fitsJSON(all, nil) {
		t.Error("these types are not sent as JSON")
	}
	half := tensor.Tensor{Type: tensor.FP16, Shape: []int64{1}, Data: []byte{0, 0}}
	if fitsJSON([]tensor.Tensor{half}, nil) || fitsJSON(nil, []graphs.Want{{Type: tensor.FP32, Shape: []int64{1}, Data: float32s(float32(math.NaN()))}}) {
		t.Error("what JSON lacks is sent as JSON")
	}
}

// The same content counts once, and what cannot be had is listed.
func TestFetch(t *testing.T) {
	root := t.TempDir()
	t.Setenv("FAAS_INFER_PYTHON", "false") // It downloads nothing.
	for _, file := range []string{
		"rapidocr-3.10.0/rapidocr/models/ch_ppocr_mobile_v2.0_cls_mobile.onnx",
		"rapidocr-onnxruntime-1.4.4/rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
		"silero-vad-6.2.3/absent",
	} {
		file = filepath.Join(root, filepath.FromSlash(file))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, file, &graphs.Cases()[0].Graph)
	}
	var log strings.Builder
	found, missing, err := fetch(t.Context(), root, regexp.MustCompile("_cls_|magika|silero_vad_half"), &log)
	if err != nil || len(found) != 1 || found[0].shapes != "x:1x3x48x192" || !found[0].batched || found[0].bytes == 0 {
		t.Fatalf("%+v, %v", found, err)
	}
	if !strings.Contains(log.String(), "content of an earlier file") {
		t.Errorf("the log says %q", log.String())
	}
	if len(missing) != 2 || !strings.HasPrefix(missing[0], "magika 1.0.3: ") || !strings.HasPrefix(missing[1], "silero_vad/data/silero_vad_half.onnx of silero-vad 6.2.3: ") {
		t.Errorf("missing are %q", missing)
	}
}

// ONNX Runtime runs the random graphs of the first two rounds, and gives the cases' answers.
func TestReference(t *testing.T) {
	r, err := NewReference(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	dir := t.TempDir()
	for i := range 2 * len(graphs.Kinds()) {
		s, err := randomSubject(dir, 1, i)
		if err != nil {
			t.Fatal(err)
		}
		answers, refused, err := r.Run(t.Context(), s.file, s.requests(1))
		if err != nil || refused != "" || len(answers) != len(s.requests(1)) {
			t.Errorf("%s: %q, %v", s.name, refused, err)
		}
	}
	for _, c := range graphs.Cases() {
		if c.Inputs[0].Type == tensor.BF16 {
			continue // NumPy has no such type.
		}
		file := write(t, filepath.Join(dir, c.Name+".onnx"), &c.Graph)
		var all [][]tensor.Tensor
		rng := rand.New(rand.NewPCG(1, 1))
		for i := range 12 {
			all = append(all, graphs.Request(c.Inputs, int64(1+i%2*2), c.Sizes[i/2%len(c.Sizes)], scales[i%len(scales)], rng))
		}
		answers, refused, err := r.Run(t.Context(), file, all)
		if err != nil || refused != "" {
			t.Errorf("%s: %q, %v", c.Name, refused, err)
			continue
		}
		for i, request := range all {
			if err := graphs.Compare(c.Answer(request), answers[i].Outputs); err != nil {
				t.Errorf("%s: %v", c.Name, err)
			}
		}
	}
	if _, refused, err := r.Run(t.Context(), filepath.Join(dir, "absent.onnx"), nil); err != nil || refused == "" {
		t.Errorf("a model that is not there: %q, %v", refused, err)
	}
}

func write(t *testing.T, file string, g *graphs.Graph) string {
	t.Helper()
	m, err := model.FromProto(g.Model)
	if err == nil {
		err = m.WriteFile(file)
	}
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// The figures count each model once.
func TestTally(t *testing.T) {
	tally := tally{missing: []string{"gone 1.0: no such version"}}
	for i, kind := range []string{right, wrong, crashed, refusedWithoutWay, unanswered, refused, right} {
		tally.results = append(tally.results, result{&subject{name: kind, random: i == 6}, outcome{kind: kind}})
	}
	r := &report.Report{}
	tally.add(r)
	for name, want := range map[string]float64{
		"shipped.right": 1, "shipped.runs": 6, "random.right": 1, "random.runs": 1, "wrong": 1, "crashed": 1,
		"refused_without_way": 1, "refused": 1, "unanswered": 1, "missing": 1,
	} {
		at := slices.IndexFunc(r.Results, func(x report.Result) bool { return x.Name == name })
		if at < 0 || r.Results[at].Value != want {
			t.Errorf("%s is not %g: %+v", name, want, r.Results)
		}
	}
}
