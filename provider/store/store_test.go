package store

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/openfaas/faas-provider/types"
	"go.etcd.io/bbolt"
	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/profiler"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func function(namespace, name string) Function {
	at := time.Date(2026, 11, 21, 12, 0, 0, 5, time.UTC)
	d := types.FunctionDeployment{
		Service: name, Namespace: namespace, Image: "mnist:latest", EnvProcess: "cat",
		EnvVars: map[string]string{"A": "1"}, Labels: &map[string]string{"l": "1"},
		Annotations: &map[string]string{"com.openfaas.slo.latency": "50ms"},
		Limits:      &types.FunctionResources{Memory: "128Mi"}, Secrets: []string{"s"}, Constraints: []string{"c"},
	}
	return Function{Deployment: d, CreatedAt: at, UpdatedAt: at, Revision: 3, Hash: Hash(d), Replicas: 2}
}

func TestFunctionsSurviveReopening(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "store.db")
	s := open(t, path)
	for _, f := range []Function{function("b", "x"), function("a", "y"), function("a", "x"), function("a-b", "x")} {
		if err := s.PutFunction(f); err != nil {
			t.Fatal(err)
		}
	}
	first, err := s.NextRevision()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, path)
	if got, err := s.Function("a", "y"); err != nil || !reflect.DeepEqual(got, function("a", "y")) {
		t.Errorf("Function = %+v, %v", got, err)
	}
	if names := list(t, s, "a"); names != "a/x a/y" {
		t.Errorf("namespace a holds %s", names)
	}
	if names := list(t, s, ""); names != "a-b/x a/x a/y b/x" {
		t.Errorf("all are %s", names)
	}
	if second, err := s.NextRevision(); err != nil || second <= first {
		t.Errorf("revision %d after %d, %v", second, first, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("file mode %v, %v", info.Mode(), err)
	}
}

func list(t *testing.T, s *Store, namespace string) string {
	t.Helper()
	fs, err := s.Functions(namespace)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range fs {
		names = append(names, f.Deployment.Namespace+"/"+f.Deployment.Service)
	}
	return strings.Join(names, " ")
}

func TestDeleteFunction(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "store.db"))
	if err := s.PutFunction(function("a", "x")); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteFunction("a", "x"); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteFunction("a", "x"); !errors.Is(err, ErrAbsent) {
		t.Errorf("second delete: %v", err)
	}
	if _, err := s.Function("a", "x"); !errors.Is(err, ErrAbsent) {
		t.Errorf("Function after delete: %v", err)
	}
}

func TestProfiles(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "store.db"))
	if _, err := s.Profile("k"); !errors.Is(err, ErrAbsent) {
		t.Errorf("absent profile: %v", err)
	}
	want := &profiler.Profile{Model: "abc", Engine: "onnxruntime 1.32.0", Memory: 5,
		Measurements: []profiler.Measurement{{Batch: 1, Threads: 1, Median: 560, P95: 600, CPU: 550, Runs: 9}}}
	if err := s.PutProfile("k", want); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Profile("k"); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("Profile = %+v, %v", got, err)
	}
	if err := s.PutProfile("", want); err == nil {
		t.Error("an empty key was taken")
	}
}

func TestHashTellsDeploymentsApart(t *testing.T) {
	a, b := function("a", "x").Deployment, function("a", "x").Deployment
	if Hash(a) != Hash(b) {
		t.Error("equal deployments hash differently")
	}
	b.EnvVars["A"] = "2"
	if Hash(a) == Hash(b) {
		t.Error("different deployments hash the same")
	}
}

func TestConcurrentUse(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "store.db"))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			name := fmt.Sprintf("f%d", i)
			if err := s.PutFunction(function("a", name)); err != nil {
				t.Error(err)
			}
			if _, err := s.Functions("a"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if fs, err := s.Functions("a"); err != nil || len(fs) != 8 {
		t.Errorf("%d functions, %v", len(fs), err)
	}
}

func TestOpenDamagedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s := open(t, path)
	for i := range 200 {
		if err := s.PutFunction(function("a", fmt.Sprintf("f%d", i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	clobbered := make([]byte, len(good))
	copy(clobbered, good[:2*os.Getpagesize()])
	for name, content := range map[string][]byte{
		"text":      []byte(strings.Repeat("this is no store\n", 4000)),
		"tiny":      []byte("x"),
		"empty":     nil,
		"truncated": good[:3*os.Getpagesize()],
		"zeroed":    clobbered,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "store.db")
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := Open(path)
			var corrupt *CorruptError
			if !errors.As(err, &corrupt) || !strings.Contains(err.Error(), "mv "+path) {
				t.Errorf("Open = %v, want a *CorruptError that says what to do", err)
			} else if strings.Contains(err.Error(), "runtime error") {
				t.Errorf("Open = %v, which says nothing to a user", err)
			}
		})
	}
}

// A new store is complete or absent, and only one of the processes that create it at the
// same time gets it.
func TestOpenCreatesAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	var all sync.WaitGroup
	var opened atomic.Int32
	for range 8 {
		all.Go(func() {
			s, err := Open(path)
			if err == nil {
				opened.Add(1)
				t.Cleanup(func() { s.Close() })
			} else if !strings.Contains(err.Error(), "in use by another process") {
				t.Error(err)
			}
		})
	}
	all.Wait()
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 || opened.Load() != 1 {
		t.Errorf("%d have opened it, beside it there is %v, %v", opened.Load(), left, err)
	}
}

func TestOpenRefusals(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "store.db")
	s := open(t, path)
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "in use by another process") {
		t.Errorf("second Open: %v", err)
	}
	if err := s.put(bucketMeta, keyFormat, 7); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if _, err := Open(path); !errors.Is(err, errFormat) {
		t.Errorf("other format: %v", err)
	}
	var corrupt *CorruptError
	if _, err := Open(dir); err == nil || errors.As(err, &corrupt) {
		t.Errorf("a directory: %v", err)
	}
}

func TestNamespaces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s := open(t, path)
	if _, err := s.Namespace("a"); !errors.Is(err, ErrAbsent) {
		t.Errorf("absent namespace: %v", err)
	}
	want := Namespace{Name: "b", Labels: map[string]string{"l": "1"}, Annotations: map[string]string{"openfaas": "1"}, CreatedAt: time.Date(2026, 11, 21, 12, 0, 0, 5, time.UTC)}
	for _, n := range []Namespace{want, {Name: "a"}, {Name: "a-b"}} {
		if err := s.PutNamespace(n); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.PutFunction(function("a", "x")); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.DeleteNamespace("a"), s.Close()); err != nil {
		t.Fatal(err)
	}
	s = open(t, path)
	if got, err := s.Namespace("b"); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("Namespace = %+v, %v", got, err)
	}
	if all, err := s.Namespaces(); err != nil || len(all) != 2 || all[0].Name != "a-b" || all[1].Name != "b" {
		t.Errorf("Namespaces = %+v, %v", all, err)
	}
	if err := s.DeleteNamespace("a"); !errors.Is(err, ErrAbsent) {
		t.Errorf("second delete: %v", err)
	}
	if names := list(t, s, "a"); names != "a/x" {
		t.Errorf("functions went with their namespace: %q", names)
	}
}

// A file of a version that did not store namespaces.
func TestOpenWithoutNamespaces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s := open(t, path)
	if err := s.PutFunction(function("a", "x")); err != nil {
		t.Fatal(err)
	}
	err := s.db.Update(func(tx *bbolt.Tx) error { return tx.DeleteBucket(bucketNamespaces) })
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	s = open(t, path)
	if all, err := s.Namespaces(); err != nil || len(all) != 0 {
		t.Errorf("Namespaces = %+v, %v", all, err)
	}
	if names := list(t, s, ""); names != "a/x" {
		t.Errorf("functions %q", names)
	}
}

// A file that has lost its end is refused at any length, and stays as it is.
func TestOpenLeavesACutOffFileAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "faas-infer.db")
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		f := Function{Deployment: types.FunctionDeployment{Service: fmt.Sprintf("f%d", i), Namespace: "n", Image: strings.Repeat("x", 500)}}
		if err := s.PutFunction(f); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	all, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for keep := 0; keep < len(all)/2; keep += 1777 {
		if err := os.WriteFile(path, all[:keep], 0o600); err != nil {
			t.Fatal(err)
		}
		var damaged *CorruptError
		if s, err := Open(path); !errors.As(err, &damaged) {
			t.Errorf("%d of %d bytes: %v", keep, len(all), err)
			if err == nil {
				s.Close()
			}
		}
		if left, err := os.ReadFile(path); err != nil || !bytes.Equal(left, all[:keep]) {
			t.Errorf("of %d bytes, %d are left as they were: %v", keep, len(left), err)
		}
	}
	if err := os.WriteFile(path, all, 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(path); err != nil {
		t.Fatal(err)
	}
	if functions, err := s.Functions(""); err != nil || len(functions) != 40 {
		t.Errorf("whole again, it has %d functions, %v", len(functions), err)
	}
	s.Close()
}
