package measuring

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/zoo"
	"github.com/faas-infer/faas-infer/profiler/cop"
	"github.com/faas-infer/faas-infer/profiler/database"
	"github.com/faas-infer/faas-infer/profiler/operator"
	"github.com/faas-infer/faas-infer/profiler/regression"
)

func duration(micros int) time.Duration { return time.Duration(micros) * time.Microsecond }

// Every operator of a small model can be measured, and the rows predict the model at every
// batch size and number of threads.
func TestModelFromItsOperators(t *testing.T) {
	engine(t)
	for _, name := range []string{"mnist", "textcnn-69"} {
		t.Run(name, func(t *testing.T) {
			g := optimised(t, name)
			db := measure(t, g, []int{1, 2, 4}, []int{1, 2})
			times := regression.New(db.Rows("engine", "machine"), 0)
			p, err := cop.Predict(g, times, cop.Options{Batches: []int{1, 2, 3, 4}, Threads: []int{1, 2}, Engine: cop.ONNXRuntime, Run: Run(g)})
			if err != nil {
				t.Fatal(err)
			}
			if len(p.Missing) > 0 || len(p.Lacking) > 0 {
				t.Errorf("missing %v, lacking %v", p.Missing, p.Lacking)
			}
			for _, c := range p.Configs {
				if !(c.Median > 0 && c.P95 >= c.Median && c.CPU > 0) {
					t.Errorf("b = %d on %d threads: %+v", c.Batch, c.Threads, c)
				}
			}
		})
	}
}

// optimised is the graph of a zoo model that the engine runs.
func optimised(t *testing.T, name string) *operator.Graph {
	t.Helper()
	m, err := zoo.Make(name, 1)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "model.onnx")
	if err := m.WriteFile(file); err != nil {
		t.Fatal(err)
	}
	prepared, err := onnxruntime.Prepare(file, t.TempDir(), onnxruntime.PrepareOptions{})
	if err != nil {
		t.Fatal(err)
	}
	what, err := model.ReadGraph(prepared.GraphFile())
	if err != nil {
		t.Fatal(err)
	}
	g, err := operator.Read(what)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// measure fills a database with rows of a graph's operators, with a small budget. It
// checks that a second pass measures nothing.
func measure(t *testing.T, g *operator.Graph, batches, threads []int) *database.Database {
	t.Helper()
	brief := Budget{Runs: 1, MaxTime: time.Millisecond}
	m, err := NewMeasurer(t.Context(), "engine", "machine", 50, brief)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	db, rows := &database.Database{}, 0
	put := func(r database.Row) error {
		if err := r.Validate(); err != nil {
			return err
		}
		rows++
		db.Add(r)
		return nil
	}
	fill := func() {
		if err := m.MeasureRun(t.Context(), func(key string) bool { return len(db.Lookup("engine", "machine", key)) > 0 }, put); err != nil {
			t.Fatal(err)
		}
		for _, task := range Tasks([]*operator.Graph{g}, batches, threads, Caches{Own: 1 << 20, Last: 8 << 20}) {
			if err := m.Measure(t.Context(), task, finder(db, task), put); err != nil {
				t.Fatal(err)
			}
		}
	}
	fill()
	if rows == 0 {
		t.Fatal("nothing was measured")
	}
	before := rows
	fill()
	if rows != before {
		t.Errorf("%d rows were measured again", rows-before)
	}
	return db
}

func finder(db *database.Database, task Task) func(int) (database.Row, bool) {
	return func(batch int) (database.Row, bool) {
		for _, r := range db.Lookup("engine", "machine", task.Operator.Key()) {
			if r.Batch == batch && r.Millicores == 1000*task.Threads && r.Cold == task.Cold {
				return r, true
			}
		}
		return database.Row{}, false
	}
}

// A cancelled measurement returns at once and keeps the rows so far.
func TestGivenUp(t *testing.T) {
	engine(t)
	g := optimised(t, "mnist")
	m, err := NewMeasurer(t.Context(), "engine", "machine", 50, Thorough)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	ctx, cancel := context.WithCancel(t.Context())
	task := Tasks([]*operator.Graph{g}, []int{1, 2, 4}, []int{1}, ReadCaches())[0]
	err = m.Measure(ctx, task, func(int) (database.Row, bool) { return database.Row{}, false }, func(database.Row) error {
		cancel()
		return nil
	})
	if err == nil || ctx.Err() == nil {
		t.Errorf("measuring went on: %v", err)
	}
}

// The copies of an operator return its results, each with its own weights.
func TestCopies(t *testing.T) {
	engine(t)
	g := optimised(t, "mnist")
	for _, op := range g.Operators {
		one, err := op.Model()
		if err != nil {
			t.Fatal(err)
		}
		three, err := copied(one, 3)
		if err != nil {
			t.Fatal(err)
		}
		a, b := one.Proto().GetGraph(), three.Proto().GetGraph()
		if len(b.Node) != 3*len(a.Node) || len(b.Output) != 3*len(a.Output) || len(b.Input) != len(a.Input) || len(b.Initializer) != 3*len(a.Initializer) {
			t.Errorf("%s: %d nodes, %d outputs, %d inputs", op.Type, len(b.Node), len(b.Output), len(b.Input))
		}
		seen := map[string]bool{}
		for i, w := range b.Initializer {
			if seen[w.GetName()] {
				t.Errorf("%s: two weights are called %s", op.Type, w.GetName())
			}
			seen[w.GetName()] = true
			if n := len(a.Initializer); i >= n && len(w.RawData) >= 1024 && string(w.RawData) == string(b.Initializer[i-n].RawData) {
				t.Errorf("%s: copies share weight %s", op.Type, w.GetName())
			}
		}
		s, err := onnxruntime.OpenSingle(three, 0, 1)
		if err != nil {
			t.Fatalf("%s: %v", op.Key(), err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestTasks(t *testing.T) {
	engine(t)
	g := optimised(t, "mnist")
	small := Tasks([]*operator.Graph{g, g}, []int{1, 2}, []int{1, 2}, Caches{Own: 1 << 30, Last: 1 << 30})
	if len(small) != 2*len(g.Operators) {
		t.Errorf("%d tasks for %d operators on two numbers of threads", len(small), len(g.Operators))
	}
	cold := 0
	for _, task := range Tasks([]*operator.Graph{g}, []int{1, 2}, []int{1}, Caches{Own: 1 << 20, Last: 8 << 20}) {
		if task.Cold {
			cold++
			if task.Operator.Features(1).WeightBytes < coldFrom {
				t.Errorf("%s is measured cold", task.Operator.Key())
			}
		}
	}
	if cold == 0 {
		t.Error("mnist's dense layer is not measured cold")
	}
}

// Of six batches on a line, three are measured; off the line, also the halves.
func TestGrid(t *testing.T) {
	batches := []int{1, 2, 4, 8, 16, 32}
	rows := map[int]float64{1: 11, 2: 14, 4: 14, 8: 22, 16: 28, 32: 42}
	asked := func() []int {
		var all []int
		err := (&Measurer{}).Measure(t.Context(), Task{Batches: batches}, func(b int) (database.Row, bool) {
			all = append(all, b)
			return database.Row{Batch: b, Median: rows[b]}, true
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(all)
		return all
	}
	if got := asked(); !slices.Equal(got, []int{1, 4, 32}) {
		t.Errorf("of 10 + b, %v were asked for", got)
	}
	rows[4], rows[8] = 20, 30
	if got := asked(); !slices.Equal(got, batches) {
		t.Errorf("off the line, %v were asked for", got)
	}
}

func TestReuseIsKnownAgain(t *testing.T) {
	db := &database.Database{}
	for size := smallestSweep; size <= largestSweep; size *= 2 {
		db.Add(database.Row{
			Operator: fmt.Sprintf(sweepKey, size>>20), Family: yardstickFamily, Batch: 1, Millicores: 1000,
			Median: float64(size>>20) * 50, Engine: "engine", Machine: "machine", MeasuredAt: time.Unix(1, 0),
		})
	}
	curve := KnownReuse(db, "engine", "machine")
	if len(curve) != 7 || curve[0].Working != smallestSweep || curve[6].Working != largestSweep || curve[3].Time != 50 {
		t.Errorf("the curve is %v", curve)
	}
	if got := KnownReuse(db, "engine", "another"); len(got) != 0 {
		t.Errorf("another machine has %v", got)
	}
}
