package upstream_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance"
	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/instance/logtest"
	"github.com/faas-infer/faas-infer/instance/upstream"
	"github.com/faas-infer/faas-infer/model/tensor"
)

const tritonConfig = `name: "another" # as its author called it
backend: "python"
max_batch_size: 3
input [ { name: "x" data_type: TYPE_FP32 dims: [ 2 ] }, { name: "y" data_type: TYPE_FP32 dims: [ 2 ] } ]
output [ { name: "sum" data_type: TYPE_FP32 dims: [ 2 ] }, { name: "difference" data_type: TYPE_FP32 dims: [ 2 ] } ]
dynamic_batching { max_queue_delay_microseconds: 100000 }
`

func tritonBundle(t testing.TB) upstream.Prepared {
	t.Helper()
	return prepare(t, write(t, map[string]string{
		"bundle.yaml": "name: sums\nengine: triton\nmodel: sums\n", "sums/config.pbtxt": tritonConfig, "sums/1/model.py": "@triton.py",
	}))
}

// pair are the inputs of the model of these tests.
func pair(x ...float32) []tensor.Tensor {
	ones := slices.Repeat([]float32{1}, len(x))
	return []tensor.Tensor{floats("x", x...), floats("y", ones...)}
}

// The real Triton Inference Server runs a batch as one request, with the instance's
// batch size and without batching of its own.
func TestTriton(t *testing.T) {
	t.Parallel()
	e, l := serve(t, tritonBundle(t))
	want := "[{x FP32 [-1 2]} {y FP32 [-1 2]}] [{sum FP32 [-1 2]} {difference FP32 [-1 2]}]"
	if got := fmt.Sprint(e.Inputs(), e.Outputs()); got != want {
		t.Errorf("the model takes and gives %s", got)
	}
	l.Await(t, "model sums batch 8 dynamic False", 1)
	for _, rows := range []int{1, 3, 8} {
		var x []float32
		for i := range 2 * rows {
			x = append(x, float32(i))
		}
		out, err := e.Run(t.Context(), rows, pair(x...))
		if err != nil {
			t.Fatal(err)
		}
		l.Await(t, "rows "+strconv.Itoa(rows), 1)
		for i := range x {
			if sum, difference := values(out[0]), values(out[1]); sum[i] != x[i]+1 || difference[i] != x[i]-1 {
				t.Fatalf("%d rows: %v and %v of %v", rows, sum, difference, x)
			}
		}
	}
	if e.Memory() < 10<<20 || e.ProcessorTime() <= 0 || e.LoadTime() <= 0 {
		t.Errorf("it holds %d bytes, has used %v and started in %v", e.Memory(), e.ProcessorTime(), e.LoadTime())
	}
}

// A model's error concerns only its batch. A fault that kills or hangs the server fails its
// batch and no later one.
func TestTritonContained(t *testing.T) {
	t.Parallel()
	bundle := tritonBundle(t)
	good := func(e *upstream.Engine, l *logtest.Log, when string) {
		t.Helper()
		out, err := e.Run(t.Context(), 1, pair(1, 2))
		if err != nil || values(out[0])[1] != 3 {
			t.Fatalf("%s: %v, %v\n%s", when, out, err, l)
		}
	}
	// What hangs has little time, what does not has as much as a busy machine takes.
	e, l := serve(t, bundle, func(o *upstream.Options) { o.Timeout = 2 * time.Second })
	good(e, l, "at first")
	if _, err := e.Run(t.Context(), 1, pair(402, 0)); !lost(err) || !strings.Contains(err.Error(), "did not answer in time") {
		t.Errorf("what hangs: %v", err)
	}
	good(e, l, "after it hung")

	e, l = serve(t, bundle, func(o *upstream.Options) { o.Timeout, o.MemoryLimit = 2*time.Minute, 1<<30 })
	for what, words := range map[float32]string{400: "no 400 here", 401: "thrown", 404: `shape [1 2] for 2 rows`} {
		if _, err := e.Run(t.Context(), 2, pair(what, 0, 0, 0)); err == nil || lost(err) || !strings.Contains(err.Error(), words) {
			t.Errorf("%v: %v, want %q", what, err, words)
		}
		good(e, l, "after an error")
	}
	if _, err := e.Run(t.Context(), 1, pair(403, 0)); !lost(err) || !strings.Contains(err.Error(), "ran out of memory and was stopped (limit 1024 MiB)") {
		t.Errorf("what takes memory: %v", err)
	}
	good(e, l, "after it took too much memory")
}

// A server that is killed during a batch is replaced.
func TestTritonKilled(t *testing.T) {
	e, l := serve(t, tritonBundle(t))
	for range 2 {
		before := servers(t)
		if len(before) != 1 {
			t.Fatalf("%d servers run", len(before))
		}
		// Counted before it is asked, which may be quicker than this goroutine.
		rows, done := strings.Count(l.String(), "rows 1"), make(chan error)
		go func() {
			_, err := e.Run(t.Context(), 1, pair(402, 0))
			done <- err
		}()
		l.Await(t, "rows 1", rows+1)
		process, err := os.FindProcess(before[0])
		if err != nil {
			t.Fatal(err)
		}
		if err := process.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; !lost(err) || !strings.Contains(err.Error(), "the model server was killed") {
			t.Errorf("killed: %v", err)
		}
		if _, err := e.Run(t.Context(), 1, pair(1, 2)); err != nil {
			t.Fatalf("after it: %v\n%s", err, l)
		}
	}
	process, err := os.FindProcess(servers(t)[0])
	if err != nil {
		t.Fatal(err)
	}
	ready := strings.Count(l.String(), "the model server is ready")
	if err := process.Kill(); err != nil {
		t.Fatal(err)
	}
	l.Await(t, "the model server is ready", ready+1) // Nobody has asked it anything.
	if _, err := e.Run(t.Context(), 1, pair(1, 2)); err != nil {
		t.Fatalf("after it was killed unasked: %v\n%s", err, l)
	}
}

// servers are the tritonservers that this process has started.
func servers(t *testing.T) (pids []int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", e.Name(), "stat"))
		if err != nil {
			continue
		}
		// Whether it sleeps or works; a dead one is nobody's any more.
		name, rest, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(rest)
		if strings.HasSuffix(name, "(tritonserver") && len(fields) > 1 && fields[0] != "Z" && fields[1] == strconv.Itoa(os.Getpid()) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func TestWhatTritonCannotLoad(t *testing.T) {
	t.Parallel()
	files := map[string]string{"bundle.yaml": "name: sums\nengine: triton\nmodel: sums\n", "sums/config.pbtxt": tritonConfig, "sums/1/model.py": "import no_such_module\n"}
	_, l, err := tryServe(t, prepare(t, write(t, files)))
	if err == nil || !strings.Contains(err.Error(), "the model server exited with status 1") || !strings.Contains(err.Error(), "no_such_module") {
		t.Errorf("%v\n%s", err, l)
	}
	files["sums/1/model.py"] = "@triton.py"
	files["sums/config.pbtxt"] = strings.NewReplacer("max_batch_size: 3", "max_batch_size: 0", "dynamic_batching", "#").Replace(tritonConfig)
	if _, l, err := tryServe(t, prepare(t, write(t, files))); err == nil || !strings.Contains(err.Error(), "first dimension must be open") {
		t.Errorf("no batches: %v\n%s", err, l)
	}
	files["sums/config.pbtxt"] = strings.NewReplacer("max_batch_size: 3", "max_batch_size: 0", "dynamic_batching", "#", "[ 2 ]", "[ -1, 2 ]").Replace(tritonConfig)
	e, _ := serve(t, prepare(t, write(t, files)))
	if out, err := e.Run(t.Context(), 2, pair(1, 2, 3, 4)); err != nil || values(out[0])[3] != 5 {
		t.Errorf("a model whose shapes have the batch: %v, %v", out, err)
	}
}

// Behind an instance, requests of every protocol become batches of Triton's.
func TestTritonBehindAnInstance(t *testing.T) {
	t.Parallel()
	e, l := serve(t, tritonBundle(t))
	s, err := instance.NewServer(e, instance.Options{Name: "sums", MaxBatch: 8, Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	var requests []frame.Request
	for i, body := range []string{
		`{"instances":[{"x":[1,2],"y":[10,20]}]}`, `{"inputs":{"x":[[3,4]],"y":[[10,20]]}}`,
		`{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[400,6]},{"name":"y","shape":[1,2],"datatype":"FP32","data":[10,20]}]}`,
	} {
		path := []string{"/", "/v1/models/sums:predict", "/v2/models/sums/infer"}[i]
		requests = append(requests, frame.Request{Method: http.MethodPost, Path: path, Body: []byte(body)})
	}
	ones := `{"inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[5,6]},{"name":"y","shape":[1,2],"datatype":"FP32","data":[10,20]}]}`
	requests = append(requests, frame.Request{Method: http.MethodPost, Path: "/v2/models/sums/infer", Body: []byte(ones)})
	responses, _ := s.HandleBatch(t.Context(), requests)
	for i, want := range []string{`"sum":[11,22]`, `"sum":[[13,24]]`, `"data":[410,26]`, `"data":[15,26]`} {
		if got := string(responses[i].Body); responses[i].Status != http.StatusOK || !strings.Contains(got, want) {
			t.Errorf("answer %d: %d %s, want %s", i, responses[i].Status, got, want)
		}
	}
	l.Await(t, "rows 4", 1)
}
