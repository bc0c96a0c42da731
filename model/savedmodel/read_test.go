package savedmodel_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/faas-infer/faas-infer/model/savedmodel"
	"github.com/faas-infer/faas-infer/model/savedmodel/tensorflowpb"
)

const lfs = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 4\n"

// put replaces a file, or removes it if there are no bytes.
func put(t *testing.T, path string, data []byte) {
	t.Helper()
	err := os.Remove(path)
	if data != nil {
		err = os.WriteFile(path, data, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestReadDamaged(t *testing.T) {
	whole := files(t, "dense")
	graph, index := whole["saved_model.pb"], whole["variables/variables.index"]
	empty := []byte{}
	for _, c := range []struct {
		name, file string
		bytes      []byte
		want       error
		words      string
	}{
		{"no graph", "saved_model.pb", nil, savedmodel.ErrNotSavedModel, "tf.saved_model.save"},
		{"empty graph", "saved_model.pb", empty, savedmodel.ErrNotSavedModel, "is empty"},
		{"graph is a pointer", "saved_model.pb", []byte(lfs), savedmodel.ErrNotSavedModel, "git lfs pull"},
		{"text", "saved_model.pb", []byte("hello, this is no model"), savedmodel.ErrNotSavedModel, "copy it again"},
		{"half a graph", "saved_model.pb", graph[:len(graph)/2], savedmodel.ErrNotSavedModel, "ends early"},
		{"last byte gone", "saved_model.pb", graph[:len(graph)-1], savedmodel.ErrNotSavedModel, "ends early"},
		{"only the version", "saved_model.pb", []byte{8, 1}, savedmodel.ErrNotSavedModel, "holds no graph"},
		{"no index", "variables/variables.index", nil, savedmodel.ErrVariables, "copy the whole directory"},
		{"index is a pointer", "variables/variables.index", []byte(lfs), savedmodel.ErrVariables, "git lfs pull"},
		{"half an index", "variables/variables.index", index[:len(index)/2], savedmodel.ErrVariables, "ends early"},
		{"no data", "variables/variables.data-00000-of-00001", nil, savedmodel.ErrVariables, "0 of 1 files"},
		{"data is a pointer", "variables/variables.data-00000-of-00001", []byte(lfs), savedmodel.ErrVariables, "git lfs pull"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := unpack(t, "dense")
			put(t, filepath.Join(dir, filepath.FromSlash(c.file)), c.bytes)
			_, err := savedmodel.Read(dir, "")
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.words) || !strings.Contains(err.Error(), dir) {
				t.Errorf("got %v, want %v with %q", err, c.want, c.words)
			}
		})
	}
}

func TestReadShards(t *testing.T) {
	dir := unpack(t, "dense")
	old := filepath.Join(dir, "variables", "variables.data-00000-of-00001")
	data, err := os.ReadFile(old)
	if err != nil {
		t.Fatal(err)
	}
	put(t, old, nil)
	for i, part := range [][]byte{data[:100], data[100:]} {
		if _, err := savedmodel.Read(dir, ""); !errors.Is(err, savedmodel.ErrVariables) {
			t.Errorf("with %d of two files: %v", i, err)
		}
		if err := os.WriteFile(strings.Replace(old, "00000-of-00001", "0000"+string(rune('0'+i))+"-of-00002", 1), part, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := savedmodel.Read(dir, ""); err != nil {
		t.Errorf("two files: %v", err)
	}
}

func TestReadElsewhere(t *testing.T) {
	dir := unpack(t, "dense")
	for path, words := range map[string]string{
		filepath.Join(dir, "saved_model.pb"): "give the directory",
		filepath.Dir(dir):                    "give that directory",
		filepath.Join(dir, "absent"):         "no such file",
		t.TempDir():                          "tf.saved_model.save",
	} {
		if _, err := savedmodel.Read(path, ""); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: got %v, want %q", path, err, words)
		}
	}
	split := t.TempDir()
	if err := os.WriteFile(filepath.Join(split, "saved_model.cpb"), []byte{1}, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := savedmodel.Read(split, ""); err == nil || !strings.Contains(err.Error(), "2 GiB") {
		t.Errorf("split: %v", err)
	}
}

// The text form may have fields that the reader ignores.
func TestReadText(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "model", "12")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(rectify, "meta_graphs {", `meta_graphs { saver_def { filename_tensor_name: "x" } `, 1)
	if err := os.WriteFile(filepath.Join(dir, "saved_model.pbtxt"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	m, err := savedmodel.Read(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	if m.Name() != "model" || len(m.Inputs()) != 1 {
		t.Errorf("%s: %v", m.Name(), m.Inputs())
	}
}

func TestReadChoosesGraph(t *testing.T) {
	saved := new(tensorflowpb.SavedModel)
	if err := prototext.Unmarshal([]byte(rectify), saved); err != nil {
		t.Fatal(err)
	}
	tagged := func(tags ...string) *tensorflowpb.MetaGraphDef {
		g := proto.CloneOf(saved.MetaGraphs[0])
		g.MetaInfoDef.Tags = tags
		return g
	}
	for _, c := range []struct {
		graphs []*tensorflowpb.MetaGraphDef
		words  string
	}{
		{[]*tensorflowpb.MetaGraphDef{tagged("train"), tagged("serve", "tpu"), tagged("serve")}, ""},
		{[]*tensorflowpb.MetaGraphDef{tagged("serve", "gpu"), tagged("train")}, ""},
		{[]*tensorflowpb.MetaGraphDef{tagged("train"), tagged()}, "their tags are {train}, {}"},
		{[]*tensorflowpb.MetaGraphDef{tagged("serve", "gpu"), tagged("serve", "tpu")}, "{serve, gpu}, {serve, tpu}"},
	} {
		b, err := proto.Marshal(&tensorflowpb.SavedModel{MetaGraphs: c.graphs})
		if err != nil {
			t.Fatal(err)
		}
		_, err = savedmodel.FromBytes(b, "")
		if c.words == "" && err != nil || c.words != "" && (!errors.Is(err, savedmodel.ErrNotSavedModel) || !strings.Contains(err.Error(), c.words)) {
			t.Errorf("got %v, want %q", err, c.words)
		}
	}
}

func TestReadChoosesSignature(t *testing.T) {
	dir := unpack(t, "signatures")
	for signature, words := range map[string]string{"": "classify, embed and no serving_default", "other": `no "other"`} {
		if _, err := savedmodel.Read(dir, signature); !errors.Is(err, savedmodel.ErrSignature) || !strings.Contains(err.Error(), words) {
			t.Errorf("signature %q: got %v, want %q", signature, err, words)
		}
	}
	for _, c := range []struct{ old, new, words string }{
		{`"serving_default"`, `"only"`, ""},
		{`"serving_default"`, `"__saved_model_init_op"`, "the model has none"},
		{`name: "in:0"`, `coo_sparse { values_tensor_name: "in:0" }`, `"x" is sparse, ragged or empty`},
	} {
		_, err := fromText(t, strings.Replace(rectify, c.old, c.new, 1))
		if c.words == "" && err != nil || c.words != "" && (err == nil || !strings.Contains(err.Error(), c.words)) {
			t.Errorf("%s: got %v, want %q", c.new, err, c.words)
		}
	}
}
