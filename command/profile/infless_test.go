package profile

import (
	"encoding/csv"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/profiler/cop"
	"github.com/faas-infer/faas-infer/profiler/database"
	"github.com/faas-infer/faas-infer/profiler/measuring/operators"
	"github.com/faas-infer/faas-infer/profiler/operator"
	"github.com/faas-infer/faas-infer/profiler/regression"
)

const inflessMachine, inflessEngine = "NVIDIA GeForce RTX 2080 Ti", "tensorflow"

// published is one line of INFless' published times on a 2080Ti.
type published struct {
	kind, model, name string
	gpu, batch, calls int
	us                float64
}

// operator is the published thing as an operator: an operator of a model, or a whole model.
func (p published) operator() *operator.Operator {
	return &operator.Operator{Type: p.kind + " " + p.model + " " + p.name}
}

func readPublished(t *testing.T) (all []published) {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "infless_2080ti.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := csv.NewReader(f)
	r.Comment = '#'
	lines, err := r.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	number := func(text string) int {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, l := range lines[1:] {
		us, err := strconv.ParseFloat(l[6], 64)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, published{l[0], l[1], l[2], number(l[3]), number(l[4]), number(l[5]), us})
	}
	return all
}

// imported imports the lines for which keep holds, and returns the database that predictions
// use.
func imported(t *testing.T, all []published, keep func(published) bool) *regression.Shares {
	t.Helper()
	text := database.Header()
	for _, p := range all {
		if !keep(p) {
			continue
		}
		op := p.operator()
		line, err := database.Encode(database.Row{
			Operator: op.Key(), Family: op.Family(), Features: op.Features(p.batch), Batch: p.batch, Millicores: 1000, GPU: p.gpu,
			Median: p.us, P95: p.us, Runs: 1, Engine: inflessEngine, Machine: inflessMachine, MeasuredAt: time.Unix(1e9, 0),
		})
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, line...)
	}
	path := filepath.Join(t.TempDir(), "operators.jsonl")
	if _, _, err := runProfile(t, text, "import", "-", "--database", path); err != nil {
		t.Fatal(err)
	}
	db, damage, err := operators.Load(path)
	if err != nil || len(damage) > 0 {
		t.Fatal(err, damage)
	}
	return regression.NewShares(db.Rows(inflessEngine, inflessMachine))
}

// Each published share between two others follows from them: the mean error over models,
// batches and shares is below a tenth, as INFless reports it for its own predictions (Fig. 8).
func TestPublishedSharesAreInterpolated(t *testing.T) {
	all := readPublished(t)
	for _, kind := range []string{"actual", "combined"} {
		sum, largest, n := 0.0, 0.0, 0
		for _, p := range all {
			if p.kind != kind || p.gpu == 10 || p.gpu == 70 || p.model == "resnet-50" && p.gpu == 50 {
				continue
			}
			s := imported(t, all, func(o published) bool { return o.kind == kind && o.gpu != p.gpu })
			e, ok := s.On(p.gpu).Time(p.operator(), p.batch, 1000, false)
			if !ok {
				t.Fatalf("%+v has no estimate", p)
			}
			off := math.Abs(e.Median/p.us - 1)
			sum, largest, n = sum+off, max(largest, off), n+1
		}
		t.Logf("%s: %d held out, mean error %.1f %%, largest %.1f %%", kind, n, 100*sum/float64(n), 100*largest)
		if n < 15 || sum/float64(n) > 0.10 || largest > 0.20 {
			t.Errorf("%s: %d held out, mean error %.1f %%, largest %.1f %%", kind, n, 100*sum/float64(n), 100*largest)
		}
	}
}

// The sum of published operator profiles predicts the published whole models on a share that
// was not profiled.
func TestPublishedModelsFromTheirOperators(t *testing.T) {
	all := readPublished(t)
	sum, n := 0.0, 0
	for _, p := range all {
		if p.kind != "actual" || p.gpu != 20 && p.gpu != 30 || p.model == "catdog" {
			continue
		}
		s := imported(t, all, func(o published) bool { return o.kind == "combined" && o.gpu != p.gpu })
		combined := p
		combined.kind = "combined"
		e, ok := s.On(p.gpu).Time(combined.operator(), p.batch, 1000, false)
		if !ok {
			t.Fatalf("%+v has no estimate", p)
		}
		sum, n = sum+math.Abs(e.Median/p.us-1), n+1
	}
	t.Logf("%d models, batches and shares, mean error %.1f %%", n, 100*sum/float64(n))
	if n < 10 || sum/float64(n) > 0.10 {
		t.Errorf("%d models, batches and shares, mean error %.1f %%", n, 100*sum/float64(n))
	}
}

// A model's time on a share is the sum over its calls of operators. Only LSTM-2365's are
// published one by one.
func TestPublishedOperatorsAddUp(t *testing.T) {
	all := readPublished(t)
	var g operator.Graph
	want := 0.0
	for _, p := range all {
		if p.kind != "operator" {
			continue
		}
		g.Operators = append(g.Operators, p.operator())
		for range p.calls {
			g.Nodes = append(g.Nodes, operator.Node{Operator: len(g.Operators) - 1})
			want += p.us
		}
	}
	s := imported(t, all, func(o published) bool { return o.kind == "operator" })
	prediction, err := cop.Predict(&g, s.On(100), cop.Options{Batches: []int{1}, Threads: []int{1}, GPU: 100, Engine: cop.ONNXRuntime})
	if err != nil || len(prediction.Missing) > 0 {
		t.Fatal(err, prediction.Missing)
	}
	profile, err := prediction.Profile("lstm-2365", inflessEngine, inflessMachine, 0, time.Unix(1e9, 0))
	if err != nil {
		t.Fatal(err)
	}
	m := profile.Measurements[0]
	if math.Abs(m.Median-want) > 1e-6*want || m.GPU != 100 || len(g.Operators) < 20 {
		t.Errorf("%+v, want %v µs", m, want)
	}
	if _, ok := profile.ExecTime(1, profiler.Share{CPU: 1000, GPU: 100}); !ok {
		t.Error("the profile has no time on the GPU")
	}
	if p, err := cop.Predict(&g, s.On(50), cop.Options{Batches: []int{1}, Threads: []int{1}, GPU: 50}); err != nil || len(p.Missing) == 0 {
		t.Errorf("below the smallest share: %v, %v", p, err)
	}
}
