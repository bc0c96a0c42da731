package model

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/faas-infer/faas-infer/model/onnxpb"
)

// ExternalFiles names the files of external weights of the model at path, relative to its
// directory and each once, also those of weights in sub-graphs. It walks through the encoded
// file: it decodes no tensor, and takes some 100 KB of memory whatever the file's size. The error
// for a file that is missing or outside of the directory wraps [ErrExternalData].
func ExternalFiles(path string) (names []string, err error) {
	err = externalFiles(path, func(name string, f *os.File) error {
		names = append(names, name)
		return nil
	})
	return names, err
}

// externalFiles calls yield with each file of external weights, open.
func externalFiles(path string, yield func(name string, f *os.File) error) error {
	if err := refuseForeign(path); err != nil {
		return err
	}
	in, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("read model: %w", err)
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return fmt.Errorf("read model: %w", err)
	}
	seen := make(map[string]bool) // Each is a file that exists, so a model cannot make this large.
	w := weightWalk{outline: &outline{in: &window{in: in}, name: filepath.Base(path)}}
	w.found = func(name string) error {
		if seen[name] {
			return nil
		}
		f, err := openBeside(path, name)
		if err != nil {
			return err
		}
		defer f.Close()
		seen[name] = true
		return yield(name, f)
	}
	if err := w.message(modelMessage, 0, info.Size(), 0); err != nil {
		return fmt.Errorf("read model %s: %w", path, err)
	}
	return nil
}

// openBeside opens a file of external weights of the model in a file. It must be a regular file
// in the model's directory. A symbolic link must not lead out of that directory, but for the
// directory in which the model itself is if its file is a link.
func openBeside(file, name string) (*os.File, error) {
	dir := filepath.Dir(file)
	if !filepath.IsLocal(name) {
		return nil, fmt.Errorf("%w: weights are at %q, outside the model's directory; move them beside the model", ErrExternalData, name)
	}
	f, err := openBelow(dir, name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		model, modelErr := filepath.EvalSymlinks(file)
		weights, weightsErr := filepath.EvalSymlinks(filepath.Join(dir, name))
		if modelErr != nil || weightsErr != nil {
			return nil, fmt.Errorf("%w: %w", ErrExternalData, errors.Join(modelErr, weightsErr))
		}
		below, relErr := filepath.Rel(filepath.Dir(model), weights)
		if relErr != nil || !filepath.IsLocal(below) {
			return nil, fmt.Errorf("%w: %q is a link out of the model's directory; put the file itself beside the model", ErrExternalData, name)
		}
		f, err = openBelow(filepath.Dir(model), below)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: weights are in the file %q; put that file beside the model: %w", ErrExternalData, name, err)
	}
	return f, nil
}

// openBelow opens a regular file below a directory, which no link may leave.
func openBelow(dir, name string) (*os.File, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) // A pipe would wait for its other end.
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, f.Close(), errors.New("it is not a regular file"))
	}
	return f, nil
}

// messageKind is a message of an ONNX model on the way to its weights.
type messageKind int

const (
	modelMessage messageKind = iota
	graphMessage
	functionMessage
	nodeMessage
	attributeMessage
	sparseMessage
	tensorMessage
)

// toWeights holds, for each message, the fields that lead to weights, by number.
var toWeights = map[messageKind]map[protowire.Number]messageKind{
	modelMessage:     {graphField: graphMessage, 25: functionMessage},
	graphMessage:     {1: nodeMessage, initializerField: tensorMessage, 15: sparseMessage},
	functionMessage:  {7: nodeMessage},
	nodeMessage:      {5: attributeMessage},
	attributeMessage: {5: tensorMessage, 6: graphMessage, 10: tensorMessage, 11: graphMessage, 22: sparseMessage, 23: sparseMessage},
	sparseMessage:    {1: tensorMessage, 2: tensorMessage},
}

const (
	// maxDepth is the maximum number of messages within each other.
	maxDepth = 200
	// maxName is the maximum length of the name of a file, in bytes.
	maxName = 4096
	// The fields of a tensor and of an entry that say where a weight is.
	externalDataField, dataLocationField protowire.Number = 13, 14
	keyField, valueField                 protowire.Number = 1, 2
)

// weightWalk walks through an encoded model to its weights.
type weightWalk struct {
	*outline
	// found is called with the location of each weight that is in another file.
	found func(name string) error
}

// message walks through a message of a kind between two positions.
func (w weightWalk) message(kind messageKind, from, end int64, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%w: it has more than %d parts within each other", ErrNotONNX, maxDepth)
	}
	if kind == tensorMessage {
		return w.tensor(from, end)
	}
	return w.fields(from, end, func(x field) error {
		next, ok := toWeights[kind][x.number]
		if !ok || x.kind != protowire.BytesType {
			return nil
		}
		return w.message(next, x.value, x.end, depth+1)
	})
}

// tensor reports where a weight is if that is another file.
func (w weightWalk) tensor(from, end int64) error {
	external, location, given := false, "", false
	err := w.fields(from, end, func(x field) (err error) {
		switch {
		case x.number == dataLocationField && x.kind == protowire.VarintType:
			var place uint64
			place, err = w.varint(x)
			external = place == uint64(onnxpb.TensorProto_EXTERNAL)
		case x.number == externalDataField && x.kind == protowire.BytesType && !given:
			var key, value string
			key, value, err = w.entry(x)
			if given = key == "location"; given {
				location = value
			}
		}
		return err
	})
	if err != nil || !external {
		return err
	}
	return w.found(location)
}

// entry reads a key and its value. A longer key than any that counts is left out.
func (w weightWalk) entry(at field) (key, value string, err error) {
	err = w.fields(at.value, at.end, func(x field) error {
		size := x.end - x.value
		if x.kind != protowire.BytesType || size > maxName {
			return nil
		}
		b := make([]byte, size)
		if _, err := w.in.ReadAt(b, x.value); err != nil {
			return err
		}
		switch x.number {
		case keyField:
			key = string(b)
		case valueField:
			value = string(b)
		}
		return nil
	})
	return key, value, err
}

// varint reads the value of a field.
func (w weightWalk) varint(x field) (uint64, error) {
	b := make([]byte, x.end-x.value)
	if _, err := w.in.ReadAt(b, x.value); err != nil {
		return 0, err
	}
	v, n := protowire.ConsumeVarint(b)
	return v, protowire.ParseError(min(n, 0))
}

// window reads a file in pieces of windowBytes for the many short reads of a walk.
type window struct {
	in   io.ReaderAt
	at   int64
	held []byte
	buf  [windowBytes]byte
}

const windowBytes = 32 << 10

// ReadAt implements io.ReaderAt, for one reader at a time.
func (w *window) ReadAt(b []byte, at int64) (int, error) {
	if len(b) > windowBytes {
		return w.in.ReadAt(b, at)
	}
	if at < w.at || at+int64(len(b)) > w.at+int64(len(w.held)) {
		n, err := w.in.ReadAt(w.buf[:], at)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		w.at, w.held = at, w.buf[:n]
	}
	n := copy(b, w.held[at-w.at:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}
