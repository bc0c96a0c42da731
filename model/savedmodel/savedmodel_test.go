package savedmodel_test

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model/savedmodel"
	"github.com/faas-infer/faas-infer/model/savedmodel/tensorflowpb"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// names are the models that scripts/savedmodel.py makes. A model with several
// signatures needs one named.
var names = []struct{ name, signature string }{
	{"dense", ""}, {"tf1", ""}, {"signatures", "embed"}, {"signatures", "classify"},
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

// The signature has the inputs and outputs that TensorFlow saved.
func TestReadsWhatTensorFlowSaved(t *testing.T) {
	for _, c := range []struct {
		name, signature string
		inputs, outputs []tensor.Info
	}{
		{"dense", "", []tensor.Info{{Name: "features", Type: tensor.FP32, Shape: []int64{-1, 6}}}, []tensor.Info{{Name: "output_0", Type: tensor.FP32, Shape: []int64{-1, 3}}}},
		{"tf1", "", []tensor.Info{{Name: "image", Type: tensor.FP32, Shape: []int64{-1, 8, 8, 1}}}, []tensor.Info{{Name: "scores", Type: tensor.FP32, Shape: []int64{-1, 3}}}},
		{
			"signatures", "classify", []tensor.Info{{Name: "x", Type: tensor.FP32, Shape: []int64{-1, 6}}},
			[]tensor.Info{{Name: "classes", Type: tensor.Int32, Shape: []int64{-1, 2}}, {Name: "scores", Type: tensor.FP32, Shape: []int64{-1, 2}}},
		},
	} {
		t.Run(c.name+c.signature, func(t *testing.T) {
			m := read(t, c.name, c.signature)
			if !reflect.DeepEqual(m.Inputs(), c.inputs) || !reflect.DeepEqual(m.Outputs(), c.outputs) {
				t.Errorf("inputs %+v, outputs %+v", m.Inputs(), m.Outputs())
			}
		})
	}
}

// rectify is a model of one operator.
const rectify = `meta_graphs {
  meta_info_def { tags: "serve" }
  signature_def { key: "serving_default" value {
    inputs { key: "x" value { name: "in:0" dtype: DT_FLOAT tensor_shape { dim { size: -1 } dim { size: 3 } } } }
    outputs { key: "y" value { name: "out:0" dtype: DT_FLOAT } }
  } }
}`

func fromText(t testing.TB, text string) (*savedmodel.Model, error) {
	t.Helper()
	saved := new(tensorflowpb.SavedModel)
	if err := prototext.Unmarshal([]byte(text), saved); err != nil {
		t.Fatal(err)
	}
	b, err := proto.Marshal(saved)
	if err != nil {
		t.Fatal(err)
	}
	return savedmodel.FromBytes(b, "")
}

// No input makes the reader panic.
func FuzzRead(f *testing.F) {
	f.Add([]byte(nil), "")
	for _, c := range names {
		f.Add(files(f, c.name)["saved_model.pb"], c.signature)
	}
	f.Fuzz(func(t *testing.T, b []byte, signature string) {
		if m, err := savedmodel.FromBytes(b, signature); (m == nil) == (err == nil) {
			t.Errorf("%v, %v", m, err)
		}
	})
}
