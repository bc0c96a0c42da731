package fidelity

import (
	"os"
	"testing"
	"time"
)

const metrics = `# HELP faas_infer_batch_size Requests in one batch.
# TYPE faas_infer_batch_size histogram
faas_infer_batch_size_bucket{function="f.openfaas-fn",le="1"} 10
faas_infer_batch_size_bucket{function="f.openfaas-fn",le="2"} 14
faas_infer_batch_size_bucket{function="f.openfaas-fn",le="4"} 15
faas_infer_batch_size_bucket{function="f.openfaas-fn",le="+Inf"} 15
faas_infer_batch_size_sum{function="f.openfaas-fn"} 21
faas_infer_batch_size_count{function="f.openfaas-fn"} 15
faas_infer_batch_size_bucket{function="other.openfaas-fn",le="+Inf"} 99
faas_infer_batch_size_sum{function="other.openfaas-fn"} 99
faas_infer_batch_size_count{function="other.openfaas-fn"} 99
# HELP faas_infer_exec_duration_seconds Time that a batch took on its instance.
# TYPE faas_infer_exec_duration_seconds histogram
faas_infer_exec_duration_seconds_bucket{function="f.openfaas-fn",le="+Inf"} 15
faas_infer_exec_duration_seconds_sum{function="f.openfaas-fn"} 0.03
faas_infer_exec_duration_seconds_count{function="f.openfaas-fn"} 15
# HELP faas_infer_queue_duration_seconds Time that a request waited.
# TYPE faas_infer_queue_duration_seconds histogram
faas_infer_queue_duration_seconds_bucket{function="f.openfaas-fn",le="+Inf"} 21
faas_infer_queue_duration_seconds_sum{function="f.openfaas-fn"} 0.042
faas_infer_queue_duration_seconds_count{function="f.openfaas-fn"} 21
`

func TestCounts(t *testing.T) {
	c, err := parse([]byte(metrics), "f"+Namespace)
	if err != nil {
		t.Fatal(err)
	}
	if c.Batches != 15 || c.Requests != 21 || c.Exec != 30*time.Millisecond || c.Queued != 21 || c.Queue != 42*time.Millisecond {
		t.Errorf("%+v", c)
	}
	want := []Class{{1, 1, 10}, {2, 2, 4}, {3, 4, 1}}
	for i, w := range want {
		if i >= len(c.Sizes) || c.Sizes[i] != w {
			t.Fatalf("sizes %v, want %v", c.Sizes, want)
		}
	}
	before, err := parse(nil, "f"+Namespace)
	if err != nil || before.Batches != 0 {
		t.Fatalf("before the first request: %+v, %v", before, err)
	}
	if d := c.since(before); d.Batches != 15 || len(d.Sizes) != len(c.Sizes) || d.Sizes[0].Batches != 10 {
		t.Errorf("since the beginning: %+v", d)
	}
	if d := c.since(c); d.Batches != 0 || d.Exec != 0 || d.Sizes[1].Batches != 0 {
		t.Errorf("since now: %+v", d)
	}
	if _, err := parse([]byte("no metrics"), "f"); err == nil {
		t.Error("what are no metrics is read")
	}
}

func TestProcessorTime(t *testing.T) {
	before, err := processorTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	// It is told in steps of 10 ms, which take longer where others use the cores.
	after := before
	for end := time.Now().Add(time.Minute); after <= before && err == nil && time.Now().Before(end); {
		after, err = processorTime(os.Getpid())
	}
	if err != nil || after <= before {
		t.Errorf("%v before, %v after some work, %v", before, after, err)
	}
	if _, err := processorTime(1 << 30); err == nil {
		t.Error("a process that is not there has a time")
	}
}

func TestSubject(t *testing.T) {
	s, err := newSubject(Function{Name: "mnist", SLO: time.Second, MaxBatch: 4})
	if err != nil || len(s.Bodies) != inputs || len(s.Header) == 0 {
		t.Fatalf("%d bodies, %v", len(s.Bodies), err)
	}
	if target := s.target("http://x", 7); target.URL != "http://x/function/mnist" || target.Rate != 7 || target.SLO != time.Second {
		t.Errorf("%+v", target)
	}
	if _, err := newSubject(Function{Name: "no-such-model"}); err == nil {
		t.Error("a model that is none")
	}
}
