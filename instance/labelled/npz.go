package labelled

import (
	"archive/zip"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/faas-infer/faas-infer/instance/protocol"
	"github.com/faas-infer/faas-infer/model/tensor"
)

const (
	// maxData is the maximum size in bytes of a file's arrays, decompressed.
	maxData = 2 << 30
	// maxArrays is the maximum number of a file's arrays.
	maxArrays = 1000
	// maxRatio bounds what a compressed array may claim to become. Deflate reaches 1032.
	maxRatio = 1032
)

// The names of arrays. With one input, x may stand for its name.
const anyInput = "x"

var labelNames = []string{"y", "labels"}

func (s *Set) readNPZ(path string, size int64) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return s.decode(f, size)
}

// decode reads a .npz file: a zip archive of .npy files.
func (s *Set) decode(from io.ReaderAt, size int64) error {
	archive, err := zip.NewReader(from, size)
	if err != nil {
		return fmt.Errorf("it is neither a directory of images nor a .npz file (numpy.savez): %w", err)
	}
	if len(archive.File) > maxArrays {
		return fmt.Errorf("it has %d arrays; the maximum is %d", len(archive.File), maxArrays)
	}
	files := map[string]*zip.File{}
	for _, f := range archive.File {
		name, ok := strings.CutSuffix(f.Name, ".npy")
		if _, twice := files[name]; !ok || twice {
			return fmt.Errorf("it has the file %.60q, which is no array or there twice; write it with numpy.savez", f.Name)
		}
		files[name] = f
	}
	left := uint64(maxData)
	read := func(name string) (tensor.Tensor, error) {
		t, err := array(files[name], &left)
		if err != nil {
			return t, fmt.Errorf("array %s: %w", name, err)
		}
		return t, nil
	}
	if err := s.readLabels(files, read); err != nil {
		return err
	}
	for _, in := range s.inputs {
		name, err := s.arrayOf(in, files)
		if err != nil {
			return err
		}
		t, err := read(name)
		if err != nil {
			return err
		}
		if err := s.fits(name, t, in); err != nil {
			return err
		}
		t.Name = in.Name
		s.arrays = append(s.arrays, t)
	}
	return nil
}

// arrayOf returns the name of the array of an input.
func (s *Set) arrayOf(in tensor.Info, files map[string]*zip.File) (string, error) {
	if files[in.Name] != nil {
		return in.Name, nil
	}
	if len(s.inputs) == 1 && files[anyInput] != nil {
		return anyInput, nil
	}
	return "", fmt.Errorf("it has no array %s for the model's input %s%v; it has %s", in.Name, in.Type, in.Shape, named(files))
}

func named(files map[string]*zip.File) string {
	names := slices.Sorted(maps.Keys(files))
	if len(names) > 10 {
		names = append(names[:10], "…")
	}
	return strings.Join(names, ", ")
}

// fits checks an array against the input and the labels.
func (s *Set) fits(name string, t tensor.Tensor, in tensor.Info) error {
	if t.Type != in.Type {
		return fmt.Errorf("array %s is %s, and the model's input %s is %s; convert it with numpy's astype", name, t.Type, in.Name, in.Type)
	}
	same := len(t.Shape) == len(in.Shape) && len(t.Shape) > 0
	for i := 1; same && i < len(t.Shape); i++ {
		same = t.Shape[i] > 0 && (in.Shape[i] < 0 || in.Shape[i] == t.Shape[i])
	}
	if !same {
		return fmt.Errorf("array %s has the shape %v, and the model's input %s %v", name, t.Shape, in.Name, in.Shape)
	}
	if t.Shape[0] != int64(len(s.Labels)) {
		return fmt.Errorf("array %s has %d rows, and there are %d labels; give one label for each row", name, t.Shape[0], len(s.Labels))
	}
	return nil
}

func (s *Set) readLabels(files map[string]*zip.File, read func(string) (tensor.Tensor, error)) error {
	var names []string
	for _, name := range labelNames {
		taken := slices.ContainsFunc(s.inputs, func(in tensor.Info) bool { return in.Name == name })
		if files[name] != nil && !taken {
			names = append(names, name)
		}
	}
	if len(names) != 1 {
		return fmt.Errorf("it has %d arrays of labels; name the labels %s; it has %s", len(names), strings.Join(labelNames, " or "), named(files))
	}
	t, err := read(names[0])
	if err != nil {
		return err
	}
	s.Labels, err = labels(t)
	if err != nil {
		return fmt.Errorf("array %s: %w", names[0], err)
	}
	return nil
}

// labels returns the classes in an array of shape [n] or [n,1].
func labels(t tensor.Tensor) ([]int, error) {
	switch {
	case t.Type == tensor.FP16 || t.Type == tensor.FP32 || t.Type == tensor.FP64:
		return nil, fmt.Errorf("the labels are %s; accuracy is about classes, whole numbers from 0, and is not defined for a regression; convert classes with numpy's astype(\"int64\")", t.Type)
	case len(t.Shape) == 2 && t.Shape[1] > 1:
		return nil, fmt.Errorf("the labels have the shape %v; give the class's number for each row, for one-hot labels y.argmax(1)", t.Shape)
	case len(t.Shape) == 0 || len(t.Shape) > 2 || len(t.Shape) == 2 && t.Shape[1] != 1:
		return nil, fmt.Errorf("the labels have the shape %v; give one number for each row", t.Shape)
	case t.Shape[0] > MaxRows:
		return nil, fmt.Errorf("there are %d labels; give at most %d", t.Shape[0], MaxRows)
	}
	width := t.Type.Size()
	out := make([]int, 0, t.Shape[0])
	for at := 0; at < len(t.Data); at += width {
		label := t.Type.Number(t.Data[at:])
		if label < 0 || label >= 1<<31 {
			return nil, fmt.Errorf("row %d has the label %.0f; labels are the numbers of classes, from 0", len(out), label)
		}
		out = append(out, int(label))
	}
	return out, nil
}

// array reads one array, of at most left bytes, and subtracts its size from left.
func array(f *zip.File, left *uint64) (tensor.Tensor, error) {
	size := f.UncompressedSize64
	switch {
	case size > *left:
		return tensor.Tensor{}, fmt.Errorf("the arrays have more than %d GiB together; give fewer rows, or images in directories", maxData>>30)
	case size > maxRatio*f.CompressedSize64+1024:
		return tensor.Tensor{}, errors.New("its size in the archive is wrong; write it again with numpy.savez")
	}
	*left -= size
	r, err := f.Open()
	if err != nil {
		return tensor.Tensor{}, err
	}
	defer r.Close()
	data := make([]byte, size)
	if _, err := io.ReadFull(r, data); err != nil {
		return tensor.Tensor{}, fmt.Errorf("it is damaged: %w", err)
	}
	// The next read compares the checksum.
	if n, err := r.Read(make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) {
		return tensor.Tensor{}, fmt.Errorf("it is damaged: %w", cmp.Or(err, io.ErrShortBuffer))
	}
	return protocol.DecodeNPY(data)
}
