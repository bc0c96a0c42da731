// Package labelled reads labelled data, on which a model's accuracy is measured: a .npz file
// of NumPy, or a directory with a directory of images for each class. It checks that rows and
// labels fit the model. It runs no model and judges no answer. Begin with [Read].
package labelled

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/faas-infer/faas-infer/instance/pixels"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// MinRows is the minimum number of labelled rows. With 30 rows, the 95 % interval of an
// accuracy of 90 % is 22 points wide.
const MinRows = 30

// MaxRows is the maximum number of labelled rows.
const MaxRows = 1_000_000

// Set holds labelled rows of a model's inputs.
type Set struct {
	// Labels has the class of each row, from 0.
	Labels []int
	inputs []tensor.Info
	// arrays hold all rows of each input. If it is nil, the rows are images.
	arrays []tensor.Tensor
	images []string
	root   string
	maker  *pixels.Maker
}

// Read reads the data at path for a model with these inputs. image says how the model
// expects images ([model.ParseImageForm]); a .npz file does not need it. Images are read
// later, by [Set.Batch].
func Read(path string, inputs []tensor.Info, image string) (*Set, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("labelled data: %w", err)
	}
	s := &Set{inputs: inputs}
	if info.IsDir() {
		err = s.readImages(path, image)
	} else {
		err = s.readNPZ(path, info.Size())
	}
	if err == nil {
		err = s.check()
	}
	if err != nil {
		return nil, fmt.Errorf("labelled data %s: %w", path, err)
	}
	return s, nil
}

func (s *Set) check() error {
	switch n := len(s.Labels); {
	case n < MinRows:
		return fmt.Errorf("there are %d labelled rows; give at least %d, and some hundreds for a difference of a few points", n, MinRows)
	case n > MaxRows:
		return fmt.Errorf("there are %d labelled rows; give at most %d", n, MaxRows)
	}
	return nil
}

// Rows returns the number of rows.
func (s *Set) Rows() int { return len(s.Labels) }

// Batch returns the rows from (inclusive) to (exclusive) as inputs in the model's order.
// They alias the set.
func (s *Set) Batch(from, to int) ([]tensor.Tensor, error) {
	if s.maker != nil {
		return s.batchOfImages(from, to)
	}
	out := make([]tensor.Tensor, len(s.arrays))
	for i, a := range s.arrays {
		row := len(a.Data) / s.Rows()
		out[i] = tensor.Tensor{Name: a.Name, Type: a.Type, Data: a.Data[from*row : to*row]}
		out[i].Shape = append([]int64{int64(to - from)}, a.Shape[1:]...)
	}
	return out, nil
}

// readImages lists the images below path.
func (s *Set) readImages(path, image string) error {
	if image == "" {
		return errors.New("it holds images, and nothing says how the model expects them; set image, for example " + model.Example)
	}
	form, err := model.ParseImageForm(image)
	if err != nil {
		return fmt.Errorf("image is %q; %w", image, err)
	}
	if s.maker, err = pixels.New(form, s.inputs); err != nil {
		return fmt.Errorf("image %q does not fit the model: %w", image, err)
	}
	s.root = path
	return s.list(path)
}

// maxImage is the maximum size of an image's file in bytes.
const maxImage = 64 << 20

func (s *Set) batchOfImages(from, to int) ([]tensor.Tensor, error) {
	root, err := os.OpenRoot(s.root)
	if err != nil {
		return nil, fmt.Errorf("labelled data: %w", err)
	}
	defer root.Close()
	var data []byte
	for _, name := range s.images[from:to] {
		file, err := readImage(root, name)
		if err == nil {
			data, err = s.maker.Append(data, file)
		}
		if err != nil {
			return nil, fmt.Errorf("labelled data: image %s: %w", filepath.Join(s.root, name), err)
		}
	}
	in := s.inputs[0]
	return []tensor.Tensor{{Name: in.Name, Type: in.Type, Shape: s.maker.Shape(in, to-from), Data: data}}, nil
}

func readImage(root *os.Root, name string) ([]byte, error) {
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	file, err := io.ReadAll(io.LimitReader(f, maxImage+1))
	if err == nil && len(file) > maxImage {
		err = fmt.Errorf("it has more than %d MiB", maxImage>>20)
	}
	return file, err
}

// Hash identifies the content of the data at path.
func Hash(path string) (string, error) {
	sum := sha256.New()
	err := filepath.WalkDir(path, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return err
		}
		below, err := filepath.Rel(path, name)
		if err != nil {
			return err
		}
		fmt.Fprintf(sum, "%q %d\n", below, info.Size())
		_, err = io.Copy(sum, f)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("labelled data: %w", err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
