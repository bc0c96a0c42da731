package objects

import (
	"bytes"
	"compress/gzip"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/faas-infer/faas-infer/profiler/database"
)

const onGPU = "onnxruntime 1 cuda"

// export is an exported file with one row for each operator.
func export(t *testing.T, engine string, names ...string) []byte {
	t.Helper()
	db := &database.Database{}
	for _, name := range names {
		db.Add(database.Row{Operator: name, Family: "f", Batch: 1, Millicores: 1000, GPU: 20, Median: 7, P95: 7, Runs: 9,
			Engine: engine, Machine: "NVIDIA T4, driver 580.1", MeasuredAt: time.Unix(1e9, 0)})
	}
	text, err := db.Export(database.Provenance{}, func(string, string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func packed(t *testing.T, text []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func holder(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "openfaas", Name: name, Labels: map[string]string{OperatorsLabel: "true"}}}
}

// Whatever cannot be used is named by ConfigMap, key and line; the rest is used.
func TestReadOperators(t *testing.T) {
	c := holder("t4")
	text := export(t, onGPU, "Conv", "MatMul")
	c.Data = map[string]string{"a.jsonl": string(text), "notes.txt": "measured in May", "cut.jsonl": strings.Replace(string(export(t, onGPU, "Add", "Relu")), "Relu", "Rely", 1)}
	c.BinaryData = map[string][]byte{"b.jsonl.gz": packed(t, export(t, onGPU, "Gemm")), "cut.gz": packed(t, text)[:20]}
	db, problems := ReadOperators(c)
	if db.Len() != 4 {
		t.Errorf("%d rows", db.Len())
	}
	for i, want := range []string{"key cut.gz: decompress it", "key cut.jsonl: 1 damaged parts are left out, the first at line 4", "key notes.txt: the file does not hold operator profiles"} {
		if len(problems) != 3 || !strings.HasPrefix(problems[i], "ConfigMap openfaas/t4, "+want) {
			t.Errorf("%q, want %s", problems, want)
			break
		}
	}
	if _, problems := ReadOperators(holder("empty")); len(problems) != 1 || !strings.Contains(problems[0], "openfaas/empty") {
		t.Errorf("empty: %q", problems)
	}
}

// The rows that there are have been taken when FollowOperators returns, others when they come.
func TestFollowOperators(t *testing.T) {
	defer goleak.VerifyNone(t)
	first, unlabelled := holder("first"), holder("unlabelled")
	first.BinaryData = map[string][]byte{"x.gz": packed(t, export(t, onGPU, "Conv"))}
	unlabelled.Labels, unlabelled.Data = nil, map[string]string{"x": string(export(t, onGPU, "Mul"))}
	client := fake.NewClientset(first, unlabelled)
	ctx, cancel := context.WithCancel(t.Context())
	taken := make(chan *database.Database, 10)
	var log bytes.Buffer
	all := &database.Database{}
	wait, err := FollowOperators(ctx, t.Context(), OperatorsOptions{Client: client, Namespace: "openfaas", Engines: []string{onGPU, "onnxruntime 1"}, Logger: zerolog.New(&log),
		Take: func(db *database.Database) (database.Merged, error) {
			defer func() { taken <- db }()
			m, _ := all.Merge(db)
			return m, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	if len(taken) != 1 || (<-taken).Lookup(onGPU, "NVIDIA T4, driver 580.1", "Conv") == nil {
		t.Error("the first was not taken")
	}
	first.Data, first.ResourceVersion = map[string]string{"y": string(export(t, onGPU, "Gemm")), "z": "nonsense"}, "2"
	if _, err := client.CoreV1().ConfigMaps("openfaas").Update(ctx, first, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := <-taken; got.Len() != 2 {
		t.Errorf("%d rows of the changed one", got.Len())
	}
	old := holder("old")
	old.Data = map[string]string{"x": string(export(t, "onnxruntime 0 cuda", "Conv"))}
	if _, err := client.CoreV1().ConfigMaps("openfaas").Create(ctx, old, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	<-taken
	cancel()
	wait()
	if all.Len() != 3 {
		t.Errorf("%d rows", all.Len())
	}
	lines := strings.Split(log.String(), "\n")
	for _, want := range []string{"openfaas/first, key z: the file does not hold operator profiles", "none of the operators' profiles can be used: the provider's engines are onnxruntime 1 cuda and onnxruntime 1;", `"new":1,"newer":0,"older":0,"same":1`} {
		if !slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, want) }) {
			t.Errorf("no line has %s:\n%s", want, log.String())
		}
	}
}
