package labelled

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"image"
	"image/color"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/faas-infer/faas-infer/instance/protocol"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// input is a model's input of two numbers a row.
var input = tensor.Info{Name: "image", Type: tensor.FP32, Shape: []int64{-1, 2}}

// array of FP32 with ascending elements, of INT64 with the row's number modulo three.
func numbers(t testing.TB, kind tensor.Type, shape ...int64) []byte {
	t.Helper()
	n, err := tensor.Elements(shape)
	if err != nil {
		t.Fatal(err)
	}
	var data []byte
	for i := range n {
		switch kind {
		case tensor.FP32:
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(i)))
		case tensor.Int64:
			data = binary.LittleEndian.AppendUint64(data, uint64(i%3))
		default:
			data = append(data, make([]byte, kind.Size())...)
		}
	}
	out, err := protocol.AppendNPY(nil, tensor.Tensor{Type: kind, Shape: shape, Data: data})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// npz is an archive of arrays by name, compressed or not.
func npz(t testing.TB, method uint16, files map[string][]byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for name, data := range files {
		f, err := w.CreateHeader(&zip.FileHeader{Name: name, Method: method})
		if err == nil {
			_, err = f.Write(data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func write(t *testing.T, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "v.npz")
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReadNPZ(t *testing.T) {
	for name, files := range map[string]map[string][]byte{
		"the input's name": {"image.npy": numbers(t, tensor.FP32, 40, 2), "y.npy": numbers(t, tensor.Int64, 40), "other.npy": nil},
		"x":                {"x.npy": numbers(t, tensor.FP32, 40, 2), "labels.npy": numbers(t, tensor.Int64, 40, 1)},
	} {
		for _, method := range []uint16{zip.Store, zip.Deflate} {
			s, err := Read(write(t, npz(t, method, files)), []tensor.Info{input}, "")
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			batch, err := s.Batch(3, 5)
			if err != nil || s.Rows() != 40 || !slices.Equal(s.Labels[3:5], []int{0, 1}) {
				t.Errorf("%s: %d rows, %v, %v", name, s.Rows(), s.Labels, err)
			}
			if len(batch) != 1 || batch[0].Name != "image" || !slices.Equal(batch[0].Shape, []int64{2, 2}) || tensor.FP32.Number(batch[0].Data[12:]) != 9 {
				t.Errorf("%s: %+v", name, batch)
			}
		}
	}
}

func TestReadNPZRefuses(t *testing.T) {
	x, y := numbers(t, tensor.FP32, 40, 2), numbers(t, tensor.Int64, 40)
	for want, files := range map[string]map[string][]byte{
		"no array image for the model's input FP32[-1 2]; it has y": {"y.npy": y},
		"0 arrays of labels; name the labels y or labels; it has x": {"x.npy": x},
		"2 arrays of labels":                                        {"x.npy": x, "y.npy": y, "labels.npy": y},
		`"x.txt", which is no array`:                                {"x.txt": x, "y.npy": y},
		"array x: it is not a .npy file":                            {"x.npy": []byte("abc"), "y.npy": y},
		"array x is FP64, and the model's input image is FP32":      {"x.npy": numbers(t, tensor.FP64, 40, 2), "y.npy": y},
		"array x has the shape [40 3], and the model's input image": {"x.npy": numbers(t, tensor.FP32, 40, 3), "y.npy": y},
		"array x has 39 rows, and there are 40 labels":              {"x.npy": numbers(t, tensor.FP32, 39, 2), "y.npy": y},
		"array y: the labels are FP32; accuracy is about classes":   {"x.npy": x, "y.npy": numbers(t, tensor.FP32, 40)},
		"y.argmax(1)":                                                   {"x.npy": x, "y.npy": numbers(t, tensor.Int64, 40, 10)},
		"array y: the labels have the shape []":                         {"x.npy": x, "y.npy": numbers(t, tensor.Int64)},
		"there are 5 labelled rows; give at least 30":                   {"x.npy": numbers(t, tensor.FP32, 5, 2), "y.npy": numbers(t, tensor.Int64, 5)},
		"array y: row 0 has the label -1; labels are the numbers of cl": {"x.npy": x, "y.npy": append(slices.Clone(y[:len(y)-320]), bytes.Repeat([]byte{255}, 320)...)},
	} {
		if _, err := Read(write(t, npz(t, zip.Store, files)), []tensor.Info{input}, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := Read(write(t, []byte("abc")), []tensor.Info{input}, ""); err == nil || !strings.Contains(err.Error(), "neither a directory of images nor a .npz file") {
		t.Error(err)
	}
	if _, err := Read("missing", []tensor.Info{input}, ""); err == nil {
		t.Error("a missing file is read")
	}
}

// A small archive that claims large arrays does not take their memory.
func TestClaimedSize(t *testing.T) {
	good := npz(t, zip.Store, map[string][]byte{"x.npy": numbers(t, tensor.FP32, 40, 2)})
	at := bytes.Index(good, []byte("PK\x01\x02"))
	for size, want := range map[uint32]string{1 << 30: "its size in the archive is wrong", 3 << 30: "more than 2 GiB together", 3: "damaged"} {
		damaged := bytes.Clone(good)
		binary.LittleEndian.PutUint32(damaged[at+24:], size)
		damaged = bytes.ReplaceAll(damaged, []byte("x.npy"), []byte("y.npy"))
		if err := new(Set).decode(bytes.NewReader(damaged), int64(len(damaged))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v, want %q", size, err, want)
		}
	}
}

// No file breaks the reader, and what it takes can be read in batches.
func FuzzDecode(f *testing.F) {
	f.Add(npz(f, zip.Store, map[string][]byte{"x.npy": numbers(f, tensor.FP32, 3, 2), "y.npy": numbers(f, tensor.Int64, 3)}))
	f.Add(npz(f, zip.Deflate, map[string][]byte{"image.npy": numbers(f, tensor.FP32, 3, 2), "labels.npy": numbers(f, tensor.Uint8, 3, 1)}))
	f.Fuzz(func(t *testing.T, file []byte) {
		s := &Set{inputs: []tensor.Info{input}}
		if s.decode(bytes.NewReader(file), int64(len(file))) != nil || s.Rows() == 0 {
			return
		}
		batch, err := s.Batch(0, s.Rows())
		if err != nil || len(batch) != 1 || len(batch[0].Data) != 8*s.Rows() {
			t.Errorf("%d rows, %v", s.Rows(), err)
		}
	})
}

// picture writes an image of one colour.
func picture(t *testing.T, path string, shade uint8) {
	t.Helper()
	img := image.NewGray(image.Rect(0, 0, 4, 4))
	for i := range img.Pix {
		img.Pix[i] = color.Gray{Y: shade}.Y
	}
	var out bytes.Buffer
	if err := png.Encode(&out, img); err != nil {
		t.Fatal(err)
	}
	put(t, path, out.Bytes())
}

func put(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

var pixel = tensor.Info{Name: "p", Type: tensor.Uint8, Shape: []int64{-1, 2, 2, 1}}

// images makes a directory with 20 images for each class.
func images(t *testing.T, classes ...string) string {
	t.Helper()
	dir := t.TempDir()
	for c, name := range classes {
		for i := range 20 {
			picture(t, filepath.Join(dir, name, string(rune('a'+i))+".png"), uint8(10*c))
		}
	}
	return dir
}

func TestReadImages(t *testing.T) {
	for _, c := range []struct{ classes, first, last string }{
		{"cat dog", "0 0", "1 10"},
		{"10 2", "10 0", "2 10"},
		{"n01 n02 n10", "0 0", "2 20"},
	} {
		dir := images(t, strings.Fields(c.classes)...)
		put(t, filepath.Join(dir, ".hidden"), nil)
		s, err := Read(dir, []tensor.Info{pixel}, "2x2")
		if err != nil {
			t.Fatal(err)
		}
		says := func(row int) string {
			batch, err := s.Batch(row, row+1)
			if err != nil || !slices.Equal(batch[0].Shape, []int64{1, 2, 2, 1}) {
				t.Fatalf("%+v, %v", batch, err)
			}
			return strings.Join([]string{strconv.Itoa(s.Labels[row]), strconv.Itoa(int(batch[0].Data[0]))}, " ")
		}
		if first, last := says(0), says(s.Rows()-1); s.Rows() != 20*len(strings.Fields(c.classes)) || first != c.first || last != c.last {
			t.Errorf("%s: %d rows, first %s, last %s", c.classes, s.Rows(), first, last)
		}
	}
}

func TestReadImagesRefuses(t *testing.T) {
	for want, c := range map[string]struct {
		image  string
		change func(dir string)
	}{
		"nothing says how the model expects them": {"", func(string) {}},
		`image is "large"; it must begin`:         {"large", func(string) {}},
		`image "3x3" does not fit the model`:      {"3x3", func(string) {}},
		"readme.png is not a directory":           {"2x2", func(dir string) { put(t, filepath.Join(dir, "readme.png"), nil) }},
		"cat/notes.txt is neither":                {"2x2", func(dir string) { put(t, filepath.Join(dir, "cat", "notes.txt"), nil) }},
		"there are 20 labelled rows":              {"2x2", func(dir string) { _ = os.RemoveAll(filepath.Join(dir, "dog")) }},
		"it has 0 directories": {"2x2", func(dir string) {
			_ = os.RemoveAll(filepath.Join(dir, "dog"))
			_ = os.RemoveAll(filepath.Join(dir, "cat"))
		}},
	} {
		dir := images(t, "cat", "dog")
		c.change(dir)
		if _, err := Read(dir, []tensor.Info{pixel}, c.image); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := Read(images(t, "1", "01"), []tensor.Info{pixel}, "2x2"); err == nil || !strings.Contains(err.Error(), "two directories have the same number") {
		t.Error(err)
	}
}

// A damaged image, and a link that leads out of the data, are named when they are read.
func TestImageThatCannotBeRead(t *testing.T) {
	dir := images(t, "cat", "dog")
	put(t, filepath.Join(dir, "cat", "a.png"), []byte("no image"))
	outside := filepath.Join(t.TempDir(), "outside.png")
	picture(t, outside, 1)
	if err := os.Symlink(outside, filepath.Join(dir, "cat", "b1.png")); err != nil {
		t.Fatal(err)
	}
	s, err := Read(dir, []tensor.Info{pixel}, "2x2")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Batch(0, 1); err == nil || !strings.Contains(err.Error(), "cat/a.png: it is not a JPEG, PNG") {
		t.Error(err)
	}
	if _, err := s.Batch(2, 3); err == nil || !strings.Contains(err.Error(), "cat/b1.png") {
		t.Error(err)
	}
}

func TestHash(t *testing.T) {
	dir := images(t, "cat", "dog")
	before, err := Hash(dir)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Hash(dir); err != nil || again != before {
		t.Error(again, err)
	}
	if err := os.Rename(filepath.Join(dir, "cat"), filepath.Join(dir, "cow")); err != nil {
		t.Fatal(err)
	}
	if after, err := Hash(dir); err != nil || after == before {
		t.Error("a class of another name has the same hash", err)
	}
}
