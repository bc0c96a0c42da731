package onnxruntime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/faas-infer/faas-infer/filelock/workdir"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// ErrSmall says that a model is too small for Link: Prepare takes little time.
var ErrSmall = errors.New("the model is small")

// linked is the suffix of the directories that Link makes.
const linked = "-plain"

// Linked reports whether p is what [Link] made, until Prepare has finished.
func (p Prepared) Linked() bool { return strings.HasSuffix(p.Dir, linked) }

// linkedBytes is the size in bytes of the model that [Link] has linked.
func (p Prepared) linkedBytes() (size int64) {
	for _, name := range []string{weightsFile, formats[FormatPlain].file} {
		if info, err := os.Stat(filepath.Join(p.Dir, name)); err == nil {
			size = max(size, info.Size())
		}
	}
	return size
}

// current returns where the model that was linked to dir is now: Prepare removes the link, which a
// provider may still name.
func current(dir string) string {
	full, ok := strings.CutSuffix(filepath.Clean(dir), linked)
	if !ok {
		return dir
	}
	if _, err := os.Stat(filepath.Join(dir, manifestFile)); !os.IsNotExist(err) {
		return dir
	}
	return full
}

// Link makes a large model usable at once by a hard link to its file. Instances begin
// with it while [Prepare] is still at work. Each of them optimises the model itself. It maps the weights as they
// are in the file, so it neither reads nor copies those that the engine does not pack. content is the model's [model.ContentHash], shapes are those of Prepare. Link returns the
// prepared model if there is one already. For a small model the error wraps [ErrSmall].
func Link(modelPath, cacheDir, content string, shapes tensor.Shapes) (Prepared, error) {
	key := keyOfContent(content, shapes)
	if p, err := ReadPrepared(filepath.Join(cacheDir, key)); err == nil {
		return p, nil
	}
	dir := filepath.Join(cacheDir, key+linked)
	if p, err := ReadPrepared(dir); err == nil {
		return p, nil
	}
	p, err := link(modelPath, cacheDir, dir, content)
	if err != nil {
		return Prepared{}, fmt.Errorf("linking %s: %w", modelPath, err)
	}
	return p, nil
}

func link(modelPath, cacheDir, dir, content string) (Prepared, error) {
	switch info, err := os.Stat(modelPath); {
	case err != nil:
		return Prepared{}, err
	case info.Size() < manyWeights: // So is the file of a model with its weights in other files.
		return Prepared{}, ErrSmall
	}
	form, err := formOf(Options{Model: modelPath})
	if err != nil {
		return Prepared{}, err
	}
	if form.data != nil || form.signature.Unbatched != "" { // Its file is not what instances load.
		return Prepared{}, ErrSmall
	}
	p := Prepared{Source: filepath.Base(modelPath), Content: content, Engine: Version(), CPU: hostCPU(), Format: FormatPlain, signature: form.signature}
	manifest, err := json.Marshal(p)
	if err != nil {
		return Prepared{}, err
	}
	m, err := model.ReadOutline(modelPath)
	if err != nil {
		return Prepared{}, err
	}
	graph, isOutlined := m.Outlined(weightsFile)
	err = workdir.Store{Dir: cacheDir}.Make(context.Background(), filepath.Base(dir), isPrepared, func(work string) error {
		file, weights := filepath.Join(work, formats[FormatPlain].file), filepath.Join(work, weightsFile)
		if !isOutlined {
			weights = file
		}
		if err := os.Link(modelPath, weights); err != nil {
			return err
		}
		if isOutlined {
			if err := os.WriteFile(file, graph, 0o644); err != nil {
				return err
			}
		}
		return os.WriteFile(filepath.Join(work, manifestFile), manifest, 0o644)
	})
	if err != nil {
		return Prepared{}, err
	}
	return ReadPrepared(dir)
}
