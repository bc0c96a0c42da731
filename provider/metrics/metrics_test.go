package metrics

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/instance/frame"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWhatPrometheusSees(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	m := New(r)
	f := m.Function("mnist.openfaas-fn")
	f.Begin()
	f.Begin()
	f.ObserveRequest(200, 3*time.Millisecond)
	f.ObserveBatch(4, 2*time.Millisecond, nil)
	f.ObserveQueue(time.Millisecond, nil)
	f.ObserveCold(80 * time.Millisecond)
	f.ObserveObjective(200, true)
	f.AddDrop(Late)
	f.AddDrop("made up")
	config := cluster.Config{Batch: 8, Resources: cluster.Resources{CPU: 1000}}
	f.SetInstances(config.String(), 2)
	f.SetExecRatio(config.String(), 1.25)
	f.SetExecRatio("gone", 2)
	f.SetExecRatio("gone", 0)
	f.SetVariantInstances("slim", "active", 2)
	f.SetVariantInstances("slim", "interfered", 1)
	f.SetVariantInstances("slim", "interfered", 0)
	f.SetParked(3)
	f.SetAllocated(cluster.Resources{CPU: 1500, GPU: 50, Memory: 1 << 20})
	f.SetUsed(cluster.Resources{CPU: 250, Memory: 1 << 10})
	m.SetNode(cluster.Node{Name: "n1", Total: cluster.Resources{CPU: 2000}, Free: cluster.Resources{CPU: 500}})
	want := `
# HELP faas_infer_requests_total Requests answered, by function and HTTP status code; 499 stands for a client that hung up.
# TYPE faas_infer_requests_total counter
faas_infer_requests_total{code="200",function="mnist.openfaas-fn"} 1
# HELP faas_infer_requests_in_flight Requests taken and not yet answered.
# TYPE faas_infer_requests_in_flight gauge
faas_infer_requests_in_flight{function="mnist.openfaas-fn"} 1
# HELP faas_infer_instances Ready instances, by config: batch, millicores, share of a GPU.
# TYPE faas_infer_instances gauge
faas_infer_instances{config="⟨8,1000m,0%⟩",function="mnist.openfaas-fn"} 2
# HELP faas_infer_variant_instances Ready instances, by variant of the model and its state: active, overloaded, interfered.
# TYPE faas_infer_variant_instances gauge
faas_infer_variant_instances{function="mnist.openfaas-fn",state="active",variant="slim"} 2
# HELP faas_infer_parked_instances Instances that are loaded and have given back their share of CPU and GPU.
# TYPE faas_infer_parked_instances gauge
faas_infer_parked_instances{function="mnist.openfaas-fn"} 3
# HELP faas_infer_exec_over_predicted_ratio Measured over predicted time of batches, at the percentile that the prediction is corrected for, by config.
# TYPE faas_infer_exec_over_predicted_ratio gauge
faas_infer_exec_over_predicted_ratio{config="⟨8,1000m,0%⟩",function="mnist.openfaas-fn"} 1.25
# HELP faas_infer_slo_misses_total Requests of slo_requests_total that were late, refused or failed.
# TYPE faas_infer_slo_misses_total counter
faas_infer_slo_misses_total{function="mnist.openfaas-fn"} 1
# HELP faas_infer_allocated_cpu_cores Processor cores that a function's instances hold.
# TYPE faas_infer_allocated_cpu_cores gauge
faas_infer_allocated_cpu_cores{function="mnist.openfaas-fn"} 1.5
# HELP faas_infer_used_cpu_cores Processor cores that a function's instances keep busy.
# TYPE faas_infer_used_cpu_cores gauge
faas_infer_used_cpu_cores{function="mnist.openfaas-fn"} 0.25
# HELP faas_infer_node_cpu_cores Processor cores of a node: total and free.
# TYPE faas_infer_node_cpu_cores gauge
faas_infer_node_cpu_cores{node="n1",state="free"} 0.5
faas_infer_node_cpu_cores{node="n1",state="total"} 2
`
	if err := testutil.GatherAndCompare(r, strings.NewReader(want),
		"faas_infer_requests_total", "faas_infer_requests_in_flight", "faas_infer_instances", "faas_infer_variant_instances", "faas_infer_parked_instances", "faas_infer_exec_over_predicted_ratio", "faas_infer_slo_misses_total",
		"faas_infer_allocated_cpu_cores", "faas_infer_used_cpu_cores", "faas_infer_node_cpu_cores"); err != nil {
		t.Error(err)
	}
	problems, err := testutil.GatherAndLint(r)
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
}

// The counters follow the definition of the attainment: the table in docs/design/metrics.md.
func TestWhatCountsForTheObjective(t *testing.T) {
	text, err := os.ReadFile("../../docs/design/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "\n| answer | within the objective | after it |\n| --- | --- | --- |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	if !found {
		t.Fatal("the page about metrics has no table of what counts")
	}
	for name, codes := range map[string][]int{
		"`1xx`, `2xx`, `3xx`": {101, 200, 204, 302}, "`429`, and `500` or above: refused or failed": {429, 500, 502, 503, 504},
		"`499`: the client hung up": {499}, "other `4xx`: the client has to change the request": {400, 401, 404, 413},
	} {
		_, row, found := strings.Cut(table, "| "+name+" | ")
		row, _, _ = strings.Cut(row, "\n")
		cells := strings.Split(strings.TrimSuffix(row, " |"), " | ")
		if !found || len(cells) != 2 {
			t.Fatalf("the table has no row %q: %s", name, table)
		}
		for _, code := range codes {
			for after, cell := range cells {
				want, known := map[string][2]float64{"in time": {1, 0}, "missed": {1, 1}, "not counted": {0, 0}}[cell]
				f := New(prometheus.NewRegistry()).Function("a.b")
				f.ObserveObjective(code, after == 1)
				if got := [2]float64{testutil.ToFloat64(f.asked), testutil.ToFloat64(f.misses)}; !known || got != want {
					t.Errorf("%d, late %v: %v requests and misses, the table says %q", code, after == 1, got, cell)
				}
			}
		}
	}
	if rows := strings.Count(table, "\n") + 1; rows != 4 {
		t.Errorf("the table has %d rows, and 4 are compared", rows)
	}
}

func TestRemoveLeavesNothing(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	m := New(r)
	f := m.Function("a.b")
	f.Begin()
	f.ObserveRequest(200, time.Millisecond)
	f.ObserveQueue(1, nil)
	f.ObserveBatch(1, 1, nil)
	f.ObserveCold(1)
	f.ObserveObjective(200, true)
	f.AddDrop(Late)
	for _, config := range []string{"x", "y"} {
		f.SetInstances(config, 1)
		f.SetExecRatio(config, 1)
	}
	f.SetVariantInstances("v", "active", 1)
	f.SetParked(1)
	f.SetObjective(time.Second, 0.99)
	f.SetLevel(1)
	f.SetProvisional(true)
	f.SetAllocated(cluster.Resources{CPU: 1})
	f.SetUsed(cluster.Resources{CPU: 1})
	f.SetShadows(true, 1, 1)
	f.AddShadowCounts(ShadowCounts{Rows: 1, Fallbacks: map[string]float64{"late": 1}, Relay: Durations{Count: 1}}, ShadowCounts{})
	m.Remove("a.b")
	f.AddShadowCounts(ShadowCounts{Rows: 1}, ShadowCounts{})
	f.SetParked(1)
	f.SetInstances("x", 1)
	f.SetExecRatio("x", 1)
	f.SetAllocated(cluster.Resources{CPU: 1})
	f.ObserveQueue(1, nil)
	if n, err := testutil.GatherAndCount(r); err != nil || n != 0 {
		t.Errorf("%d series after Remove, %v", n, err)
	}
	again := m.Function("a.b")
	if got := again.Answered(); got != 0 {
		t.Errorf("a new function begins at %d", got)
	}
	again.SetInstances("x", 2)
	if f.SetInstances("x", 0); testutil.CollectAndCount(m.instances) != 1 {
		t.Error("the removed function took a gauge of the new one")
	}
}

// removal is how long it takes to remove one of that many functions.
func removal(functions int) time.Duration {
	m := New(prometheus.NewRegistry())
	for i := range functions {
		deployed(m, strconv.Itoa(i)).SetInstances("x", 1)
	}
	began := time.Now()
	for i := range 20 {
		m.Remove(strconv.Itoa(i))
	}
	return time.Since(began) / 20
}

// The time to remove a function does not depend on how many there are.
func TestRemoveTakesNoLongerAmongMany(t *testing.T) {
	few, many := removal(20), removal(5000)
	for range 5 { // The machine may be busy with something else meanwhile.
		few, many = max(few, removal(20)), min(many, removal(5000))
	}
	if many > 10*few {
		t.Errorf("%v among many, %v among few", many, few)
	}
}

func TestSetInstancesZeroTakesTheConfigOff(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	f := New(r).Function("a.b")
	f.SetInstances("x", 1)
	f.SetInstances("x", 0)
	if n, _ := testutil.GatherAndCount(r, "faas_infer_instances"); n != 0 {
		t.Errorf("%d series", n)
	}
}

func TestConcurrentCounting(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	m := New(r)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			f := m.Function("a.b")
			for i := range 1000 {
				f.Begin()
				f.ObserveRequest(200+i%7, time.Millisecond)
				if i%100 == 0 {
					if _, err := r.Gather(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	if got := m.Function("a.b").Answered(); got != 8000 {
		t.Errorf("Answered = %d, want 8000", got)
	}
}

func BenchmarkObserveRequest(b *testing.B) {
	f := New(prometheus.NewRegistry()).Function("a.b")
	b.ReportAllocs()
	for b.Loop() {
		f.Begin()
		f.ObserveRequest(200, time.Millisecond)
		f.ObserveQueue(time.Millisecond, nil)
	}
}

// A sampled request's trace is an exemplar of each of its times.
func TestExemplars(t *testing.T) {
	r := prometheus.NewRegistry()
	f := New(r).Function("a.b")
	of := &frame.Trace{TraceID: [16]byte{0xab}}
	for range 2 { // The first value makes the histogram.
		f.ObserveSampled(200, time.Millisecond, of)
		f.ObserveQueue(time.Millisecond, of)
		f.ObserveBatch(2, time.Millisecond, of)
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	with := map[string]bool{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			for _, b := range m.GetHistogram().GetBucket() {
				if e := b.GetExemplar(); e != nil {
					with[family.GetName()] = e.GetLabel()[0].GetName() == "trace_id" && e.GetLabel()[0].GetValue() == of.ID()
				}
			}
		}
	}
	for _, name := range []string{"request", "queue", "exec"} {
		if !with["faas_infer_"+name+"_duration_seconds"] {
			t.Errorf("the time of %s has no exemplar: %v", name, with)
		}
	}
}
