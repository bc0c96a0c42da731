// Package savedmodel reads the signatures of TensorFlow SavedModels, and not their graphs:
// TensorFlow itself does that when it serves or converts them. So a bundle with a model
// that cannot be served is refused without TensorFlow, which takes seconds to start.
// Begin with [Read].
package savedmodel

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	pb "github.com/faas-infer/faas-infer/model/savedmodel/tensorflowpb"
)

// Errors that reading a SavedModel wraps.
var (
	// ErrNotSavedModel: the directory is not a SavedModel, or its saved_model.pb
	// is damaged.
	ErrNotSavedModel = errors.New("not a SavedModel")
	// ErrVariables: the files of variables are missing or damaged.
	ErrVariables = errors.New("variables")
	// ErrSignature: the model has no signature of that name, or several and the
	// caller named none.
	ErrSignature = errors.New("signature")
)

// serving is the tag of the graph for serving.
const serving = "serve"

const (
	binaryFile = "saved_model.pb"
	textFile   = "saved_model.pbtxt"
	splitFile  = "saved_model.cpb"
)

// Read reads a signature of the SavedModel in a directory. An empty name means
// serving_default, or the only one. Read checks that the variables' files are there,
// but does not read them.
//
// The errors wrap [ErrNotSavedModel], [ErrVariables] or [ErrSignature].
func Read(dir, signature string) (*Model, error) {
	saved, err := readFile(dir)
	if err != nil {
		return nil, fmt.Errorf("read SavedModel %s: %w", dir, err)
	}
	m, err := fromProto(saved, name(dir), signature)
	if err != nil {
		return nil, fmt.Errorf("read SavedModel %s: %w", dir, err)
	}
	if err := checkVariables(filepath.Join(dir, "variables")); err != nil {
		return nil, fmt.Errorf("read SavedModel %s: %w", dir, err)
	}
	return m, nil
}

// name is the name of the model in a directory. The versions of a model are
// directories named by a number, side by side in a directory with the model's name.
func name(dir string) string {
	if absolute, err := filepath.Abs(dir); err == nil {
		dir = absolute
	}
	base := filepath.Base(dir)
	if strings.Trim(base, "0123456789") == "" {
		return filepath.Base(filepath.Dir(dir))
	}
	return base
}

func readFile(dir string) (*pb.SavedModel, error) {
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return nil, fmt.Errorf("%w: it is a file; give the directory that holds %s", ErrNotSavedModel, binaryFile)
	}
	b, err := os.ReadFile(filepath.Join(dir, binaryFile))
	if err == nil {
		return decode(b)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if b, err := os.ReadFile(filepath.Join(dir, textFile)); err == nil {
		saved := new(pb.SavedModel)
		if err := (prototext.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(b, saved); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrNotSavedModel, textFile, err)
		}
		return saved, nil
	}
	return nil, missing(dir, err)
}

// missing is the error for a directory without a file to read. It says what to do.
func missing(dir string, err error) error {
	if _, err := os.Stat(dir); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, splitFile)); err == nil {
		return fmt.Errorf("%w: it is split into chunks (%s), which faas-infer cannot read; save a model of less than 2 GiB, with its weights as variables", ErrNotSavedModel, splitFile)
	}
	versions, _ := filepath.Glob(filepath.Join(dir, "*", binaryFile))
	for i, v := range versions {
		versions[i] = filepath.Dir(v)
	}
	if len(versions) > 0 {
		return fmt.Errorf("%w: it has no %s, but there is one in %s; give that directory", ErrNotSavedModel, binaryFile, strings.Join(versions, ", "))
	}
	return fmt.Errorf("%w: %w; make one with `model.export(DIR)` or `tf.saved_model.save(model, DIR)`", ErrNotSavedModel, err)
}

func decode(b []byte) (*pb.SavedModel, error) {
	if len(b) == 0 {
		return nil, fmt.Errorf("%w: %s is empty", ErrNotSavedModel, binaryFile)
	}
	if isPointer(b) {
		return nil, fmt.Errorf("%w: %s is a Git LFS pointer; get the file itself with `git lfs pull`", ErrNotSavedModel, binaryFile)
	}
	saved := new(pb.SavedModel)
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(b, saved); err != nil {
		return nil, fmt.Errorf("%w: %s ends early or holds something else; copy it again: %w", ErrNotSavedModel, binaryFile, err)
	}
	return saved, nil
}

func isPointer(b []byte) bool { return bytes.HasPrefix(b, []byte("version https://git-lfs")) }

// served is the graph for serving. If there are several, as for a TPU, it is the
// one without another tag.
func served(saved *pb.SavedModel) (*pb.MetaGraphDef, error) {
	if len(saved.GetMetaGraphs()) == 0 {
		return nil, fmt.Errorf("%w: %s holds no graph", ErrNotSavedModel, binaryFile)
	}
	var found []*pb.MetaGraphDef
	var tags []string
	for _, g := range saved.GetMetaGraphs() {
		own := g.GetMetaInfoDef().GetTags()
		tags = append(tags, "{"+strings.Join(own, ", ")+"}")
		if slices.Equal(own, []string{serving}) {
			return g, nil
		}
		if slices.Contains(own, serving) {
			found = append(found, g)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return nil, fmt.Errorf("%w: no graph has the tag %q; their tags are %s; save the model for serving", ErrNotSavedModel, serving, strings.Join(tags, ", "))
	}
	return nil, fmt.Errorf("%w: several graphs have the tag %q, and none has it alone: %s; save the model with one of them", ErrNotSavedModel, serving, strings.Join(tags, ", "))
}
