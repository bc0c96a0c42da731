package model_test

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/model"
)

// archive returns a zip archive with empty files of these names.
func archive(t testing.TB, names ...string) string {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, name := range names {
		if _, err := w.CreateHeader(&zip.FileHeader{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// packed compresses text.
func packed(t testing.TB, open func(io.Writer) io.WriteCloser, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := open(&b)
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func inGzip(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }
func inZlib(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) }

const (
	aPickle = "\x80\x04\x95\x0a\x00\x00\x00\x00\x00\x00\x00}\x94\x8c\x01a\x94K\x01s."
	// As joblib writes it, and Python 2.
	aJoblib    = "\x80\x04\x95\x00\x02\x00\x00\x00\x00\x00\x00\x8c\x18sklearn.ensemble._forest\x94"
	anOldOne   = "ccopy_reg\n_reconstructor\np0\n(csklearn.svm\nSVC\n"
	convertTo  = "faas-infer model convert FILE model.onnx"
	aTar       = "model/\x00"
	aGraphNode = "\x0a\x23\x0a\x01x\x12\x0bPlaceholder*\x11\x0a\x05dtype\x12\x08\x30\x01"
)

// foreign are the heads of files of each format, and words of the sentence that refuses them.
func foreign(t testing.TB) []struct{ name, head, what, way string } {
	tar := aTar + strings.Repeat("\x00", 257-len(aTar)) + "ustar\x0000"
	return []struct{ name, head, what, way string }{
		{"nothing", "", "an empty file", "copy the model again"},
		{"zeros", strings.Repeat("\x00", 4096), "nothing but zeros", "download the file again"},
		{"LFS", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "a Git LFS pointer", "git lfs pull"},
		{"HTML", "\n<!DOCTYPE html>\n<html lang=\"en\">", "an HTML page", "download the file again"},
		{"XML error", "<?xml version=\"1.0\"?>\n<Error><Code>AccessDenied</Code></Error>", "an error message", "download the file again"},
		{"GGUF", "GGUF\x03\x00\x00\x00", "GGUF", "llama-cpp-python"},
		{"safetensors", "\x40\x00\x00\x00\x00\x00\x00\x00{\"w\":{\"dtype\":\"F32\"}}", "weights in safetensors", "template python-infer"},
		{"TensorFlow Lite", "\x1c\x00\x00\x00TFL3\x14\x00\x20\x00", "TensorFlow Lite", "tf2onnx.convert --tflite"},
		{"ORT", "\x20\x00\x00\x00ORTM\x00\x00\x00\x00", "own format (.ort)", "give the .onnx file"},
		{"TensorRT", "ptrt\x00\x00", "TensorRT", "template triton"},
		{"CatBoost", "CBM1\x90\x2f\x00\x00", "a CatBoost model", convertTo},
		{"CatBoost JSON", "{\n\"features_info\":\n{\n\"float_features\":\n[", "a CatBoost model in JSON", convertTo},
		{"XGBoost JSON", `{"learner":{"attributes":{},"feature_names":[],"gradient_booster":{`, "an XGBoost model", convertTo},
		{"XGBoost JSON with spaces", "{\n \"version\": [1, 6, 0],\n \"learner\": {\"gradient_booster\": {", "an XGBoost model", convertTo},
		{"XGBoost UBJ", "{L\x00\x00\x00\x00\x00\x00\x00\x07learner{L\x00\x00\x00\x00\x00\x00\x00\x0afeature_namesgradient_booster", "an XGBoost model", convertTo},
		{"XGBoost binary", "binf\x00\x00\x00\x3f", "former binary format", "save_model"},
		{"LightGBM", "tree\nversion=v4\nnum_class=1\n", "a LightGBM model", convertTo},
		{"Keras", archive(t, "metadata.json", "config.json", "model.weights.h5"), "a Keras model", convertTo},
		{"HDF5", "\x89HDF\r\n\x1a\n\x00", "an HDF5 file", convertTo},
		{"PyTorch program", archive(t, "archive/archive_format", "archive/models/model.json", "archive/data/weights/w"), "torch.export.save", convertTo},
		{"older PyTorch program", archive(t, "serialized_exported_program.json"), "torch.export.save", convertTo},
		{"TorchScript", archive(t, "m/data.pkl", "m/code/__torch__.py", "m/constants.pkl"), "TorchScript", convertTo},
		{"PyTorch pickle", archive(t, "archive/data.pkl", "archive/data/0"), "a PyTorch file (torch.save)", convertTo},
		{"PyTorch before 1.6", "\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.", "a PyTorch file (torch.save)", convertTo},
		{"Core ML package", archive(t, "m.mlpackage/Data/com.apple.CoreML/model.mlmodel"), "a Core ML model", "faas-infer model convert"},
		{"Core ML", "\x08\x01\x12\x1c\x0a\x0f\x0a\x01x\x1a\x0a*\x08\x12\x04\x01\x02\x03\x04", "a Core ML model", "faas-infer model convert"},
		{"SavedModel in zip", archive(t, "m/saved_model.pb"), "an archive of a SavedModel", "faas-infer model convert DIR"},
		{"TorchServe", archive(t, "MAR-INF/MANIFEST.json", "m.bin"), "an archive of TorchServe", "unpack it"},
		{"ONNX in zip", archive(t, "m/model.onnx"), "an archive with an ONNX model", "unpack it"},
		{"NumPy arrays", archive(t, "x.npy"), "arrays of NumPy", "template python-infer"},
		{"zip", archive(t, "readme.txt"), "a zip archive", "unpack it"},
		{"half a zip", archive(t, "metadata.txt")[:50], "a zip archive that ends early", "download the file again"},
		{"tar", tar, "a tar archive", "tar xf"},
		{"pickle", aPickle, "a Python pickle", convertTo + " --trust`"},
		{"joblib", aJoblib, "a Python pickle", convertTo + " --trust`"},
		{"pickle of protocol 0", anOldOne, "a Python pickle", "template python-infer"},
		{"joblib in zlib", packed(t, inZlib, aJoblib), "compressed by zlib", convertTo + " --trust`"},
		{"joblib in gzip", packed(t, inGzip, aJoblib), "a Python pickle", convertTo + " --trust`"},
		{"tar in gzip", packed(t, inGzip, tar), "a tar archive, compressed by gzip", "gunzip"},
		{"ONNX in gzip", packed(t, inGzip, string(encoded(t, "identity"))), "compressed by gzip", "gunzip"},
		{"bzip2", "BZh91AY&SY", "compressed by bzip2", "bunzip2"},
		{"xz", "\xfd7zXZ\x00\x00\x04", "compressed by xz", "unxz"},
		{"NumPy array", "\x93NUMPY\x01\x00v\x00", "an array of NumPy", "template python-infer"},
		{"OpenVINO", "<?xml version=\"1.0\"?>\n<net name=\"m\" version=\"11\">\n\t<layers>\n\t\t<layer id=\"0\"", "an OpenVINO model", "openvino in requirements.txt"},
		{"PMML", "<?xml version=\"1.0\"?>\n<PMML version=\"4.3\">", "a PMML model", "template python-infer"},
		{"SavedModel", "\x08\x01\x12\x90\x40\x0a\x83\x10\x12\xe2\x0f\x0a\x07\x0a\x03Add", "saved_model.pb", "faas-infer model convert DIR"},
		{"frozen graph", aGraphNode, "a frozen graph", "tf2onnx.convert --graphdef"},
		{"PaddlePaddle", "\x0a\xf4\x13\x08\x00\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "PaddlePaddle", "paddle2onnx"},
		{"other JSON", `{"model_type": "bert"}`, "text in JSON", "the model's own file"},
	}
}

// Every format is refused with a sentence that names the way out, by each way to read a file.
func TestForeignFilesAreRefusedWithTheWayOut(t *testing.T) {
	for _, test := range foreign(t) {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "model.onnx") // The name says nothing.
			if err := os.WriteFile(path, []byte(test.head), 0o644); err != nil {
				t.Fatal(err)
			}
			_, inMemory := model.Read([]byte(test.head))
			_, whole := model.ReadFile(path)
			_, outline := model.ReadOutline(path)
			for _, err := range []error{inMemory, whole, outline} {
				if !errors.Is(err, model.ErrNotONNX) || !strings.Contains(err.Error(), test.what) || !strings.Contains(err.Error(), test.way) {
					t.Errorf("%v, want %q and %q", err, test.what, test.way)
				}
			}
			if strings.Contains(whole.Error(), "\n") {
				t.Errorf("more than one line: %v", whole)
			}
		})
	}
}

// An ONNX model is never taken for another format, wherever it ends.
func TestONNXIsNotForeign(t *testing.T) {
	for _, name := range []string{"identity", "textcnn", "dssm"} {
		b := encoded(t, name)
		for _, size := range []int{len(b), len(b) / 2, 1000, 100, 40, 10, 2} {
			size = min(size, len(b))
			if f, ok := model.Recognise(bytes.NewReader(b[:size]), int64(size)); ok {
				t.Errorf("%d bytes of %s: %v", size, name, f)
			}
		}
	}
}

// sparse is a large file: a head, and an archive's end.
type sparse struct {
	head []byte
	size int64
	read int64
}

func (s *sparse) ReadAt(b []byte, at int64) (int, error) {
	s.read += int64(len(b))
	clear(b)
	if at < int64(len(s.head)) {
		copy(b, s.head[at:])
	}
	if at+int64(len(b)) >= s.size {
		return int(max(0, s.size-at)), io.EOF
	}
	return len(b), nil
}

// Of a file of any size only the head and an archive's directory are read.
func TestRecogniseReadsTheHeadOnly(t *testing.T) {
	for _, head := range []string{"GGUF\x03\x00\x00\x00", archive(t, "archive/data.pkl")[:60], "\x08\x07\x12\x07pytorch", packed(t, inGzip, aPickle)} {
		file := &sparse{head: []byte(head), size: 100 << 30}
		model.Recognise(file, file.size)
		if file.read > 1<<20 {
			t.Errorf("%.8q: %d bytes were read", head, file.read)
		}
	}
}

func TestRecogniseFile(t *testing.T) {
	dir := t.TempDir()
	if _, _, err := model.RecogniseFile(filepath.Join(dir, "absent")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if f, ok, err := model.RecogniseFile(dir); ok || err != nil {
		t.Errorf("a directory: %v, %v", f, err)
	}
}

// Bytes that nobody knows are refused with what there is to do.
func TestUnknownBytesNameTheWayOut(t *testing.T) {
	for _, text := range []string{"\x17\x0f\x0e\x0d\x0c\x0b", "hello, this is no model\n", "\x01\x02\x03"} {
		if _, err := model.Read([]byte(text)); !errors.Is(err, model.ErrNotONNX) || !strings.Contains(err.Error(), "template python-infer") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// Any bytes are recognised or not, without a panic, and a sentence has both of its parts.
func FuzzRecognise(f *testing.F) {
	for _, test := range foreign(f) {
		f.Add([]byte(test.head))
	}
	f.Add(encoded(f, "identity"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if found, ok := model.Recognise(bytes.NewReader(b), int64(len(b))); ok && (found.What == "" || found.Way == "" || found.Format == "") {
			t.Errorf("%+v", found)
		}
	})
}
