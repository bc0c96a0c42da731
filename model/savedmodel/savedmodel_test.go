package savedmodel_test

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/savedmodel"
)

// names are the models that scripts/savedmodel.py makes, with a signature that
// has to be said.
var names = []struct{ name, signature string }{
	{"dense", ""}, {"cnn", ""}, {"lstm", ""}, {"textcnn", ""}, {"attention", ""}, {"branching", ""}, {"tf1", ""},
	{"signatures", "embed"}, {"signatures", "classify"},
}

// unpack writes a model of testdata to a directory of its name.
func unpack(t testing.TB, name string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	for file, data := range files(t, name) {
		path := filepath.Join(dir, filepath.FromSlash(file))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, data, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func files(t testing.TB, name string) map[string][]byte {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name+".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	plain, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	all, archive := map[string][]byte{}, tar.NewReader(plain)
	for {
		entry, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if all[entry.Name], err = io.ReadAll(archive); err != nil {
			t.Fatal(err)
		}
	}
}

func read(t testing.TB, name, signature string) *savedmodel.Model {
	t.Helper()
	m, err := savedmodel.Read(unpack(t, name), signature)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func graph(t testing.TB, m *savedmodel.Model, batch int) *model.Graph {
	t.Helper()
	g, err := m.Graph(batch)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// computed is what TensorFlow computed: by tensor, its type and its shapes at
// batches of 1 and 4.
type computed map[string]struct {
	kind   string
	shapes [2][]int64
}

func expected(t *testing.T, name, signature string) computed {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]map[string][3]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	out := computed{}
	for tensor, parts := range all[signature] {
		entry := out[tensor]
		if err := errors.Join(json.Unmarshal(parts[0], &entry.kind), json.Unmarshal(parts[1], &entry.shapes[0]), json.Unmarshal(parts[2], &entry.shapes[1])); err != nil {
			t.Fatal(err)
		}
		out[tensor] = entry
	}
	return out
}

// find looks for a tensor by its node's own name, which TensorFlow puts the calls
// before that led to it.
func (c computed) find(tensor string) (kind string, shapes [2][]int64, ok bool) {
	if e, ok := c[tensor]; ok {
		return e.kind, e.shapes, true
	}
	for name, e := range c {
		if calls.FindString(name)+tensor == name {
			return e.kind, e.shapes, true
		}
	}
	return "", shapes, false
}

var calls = regexp.MustCompile(`^(\w*PartitionedCall\w*/)*`)

var kinds = map[string]string{"float32": "FP32", "int32": "INT32", "int64": "INT64", "bool": "BOOL"}

// Every operator's outputs have the types and shapes that TensorFlow computes.
func TestShapesAreTensorFlows(t *testing.T) {
	for _, c := range names {
		t.Run(c.name+c.signature, func(t *testing.T) {
			m := read(t, c.name, c.signature)
			want := expected(t, c.name, m.Signature())
			for i, batch := range []int{1, 4} {
				compared := 0
				for _, op := range graph(t, m, batch).Operators {
					compared += compare(t, want, op, i)
				}
				if compared == 0 {
					t.Error("nothing was compared")
				}
				t.Logf("%d tensors", compared)
			}
		})
	}
}

func compare(t *testing.T, want computed, op model.Operator, batch int) (compared int) {
	t.Helper()
	for _, out := range op.Outputs {
		tensor := op.Name
		if at := slices.Index(op.Node.GetOutput(), out.Name); at >= 0 {
			tensor += ":" + string(rune('0'+at))
		}
		kind, shapes, ok := want.find(tensor)
		if !ok {
			if !strings.Contains(op.Type, "TensorList") && len(out.Shape) > 0 {
				t.Errorf("%s (%s): TensorFlow's shape of %s is not there", op.Name, op.Type, tensor)
			}
			continue
		}
		compared++
		if !slices.Equal(out.Shape, shapes[batch]) || string(out.Type) != kinds[kind] {
			t.Errorf("%s (%s): %s %v, TensorFlow has %s %v", tensor, op.Type, out.Type, out.Shape, kind, shapes[batch])
		}
	}
	return compared
}
