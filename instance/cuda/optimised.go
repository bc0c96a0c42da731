package cuda

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/faas-infer/faas-infer/filelock/workdir"
	"github.com/faas-infer/faas-infer/model"
)

// The files of a copy. The manifest is written last.
const (
	copyModel    = "model.onnx"
	copyWeights  = "weights.bin"
	copyManifest = "manifest.json"
	// copying is the version of how copies are made. Those of another version are not found.
	copying = "1"
)

// optimised is the copy of a model as ONNX Runtime optimised it for one kind of GPU. The zero
// value keeps none.
type optimised struct {
	dir string
	made
	// ready is set if sessions load it, and work is the directory in which it is being made, nil if it is not.
	ready bool
	work  *workdir.Dir
	// damaged is set if the copy could not be loaded although the model can: publish replaces it.
	damaged bool
	// problem says why the copy could not be kept or used.
	problem string
}

// failed keeps the first error.
func (k *optimised) failed(err error) {
	if err != nil && k.problem == "" {
		k.problem = err.Error()
	}
}

// made says what a copy was made of, and how its files were written.
type made struct {
	Content string `json:"content"`
	Engine  string `json:"engine"`
	Device  string `json:"device"`
	// Model is the hash of the model's file. Weights is the size of its weights' file in bytes,
	// which is 0 for a model with small weights only. Hashing them would take as long as what the
	// copy saves.
	Model   string `json:"model"`
	Weights int64  `json:"weights"`
}

// findCopy finds the kept copy of the model, or where it shall be made.
func (e *Engine) findCopy() (err error) {
	o := e.options
	if o.Copies == "" {
		return nil
	}
	m := made{Content: o.Content, Engine: libraries.version}
	if m.Content == "" {
		if m.Content, err = model.ContentHash(o.Model); err != nil {
			return err
		}
	}
	if m.Device, _, err = deviceIdentity(); err != nil {
		return err
	}
	key := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s\n%s\n", m.Content, m.Engine, m.Device, copying))
	e.copy = optimised{dir: filepath.Join(o.Copies, "cuda-"+hex.EncodeToString(key[:16])), made: m}
	e.copy.ready = e.copy.check()
	return nil
}

func (k *optimised) model() string { return filepath.Join(k.dir, copyModel) }

// check reports whether there is a whole copy of this model.
func (k *optimised) check() bool {
	text, err := os.ReadFile(filepath.Join(k.dir, copyManifest))
	if err != nil {
		return false
	}
	var is, want made
	if json.Unmarshal(text, &is) != nil {
		return false
	}
	want, err = k.describe(k.dir)
	return err == nil && is == want
}

// describe returns what the manifest of a copy in dir must say.
func (k *optimised) describe(dir string) (made, error) {
	m := k.made
	graph, err := os.ReadFile(filepath.Join(dir, copyModel))
	if err != nil {
		return m, err
	}
	hash := sha256.Sum256(graph)
	m.Model = hex.EncodeToString(hash[:])
	info, err := os.Stat(filepath.Join(dir, copyWeights))
	if os.IsNotExist(err) {
		return m, nil
	}
	if err != nil {
		return m, err
	}
	m.Weights = info.Size()
	return m, nil
}

// store is where the copy is, and others' of the same model. A session would not notice shortened weights.
func (k *optimised) store() workdir.Store {
	return workdir.Store{Dir: filepath.Dir(k.dir), Durable: true}
}

// begin makes the directory in which the copy is written. It reports false if none is kept, or if none can be: an
// engine can do without.
func (k *optimised) begin() bool {
	if k.dir == "" {
		return false
	}
	var err error
	k.work, err = k.store().Begin()
	k.failed(err)
	return err == nil
}

// abandon removes a copy that was not completed.
func (k *optimised) abandon() {
	if k.work != nil {
		_ = k.work.Remove()
		k.work = nil
	}
}

// publish completes the copy that was written, and moves it to its place. Of two processes that make the
// same one, the first one's stays.
func (k *optimised) publish() error {
	if k.work == nil {
		return nil
	}
	defer k.abandon()
	m, err := k.describe(k.work.Path)
	if err != nil {
		return err
	}
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(k.work.Path, copyManifest), text, 0o644); err != nil {
		return err
	}
	err = k.store().Publish(k.work, filepath.Base(k.dir), func(string) bool { return !k.damaged && k.check() })
	k.ready = err == nil
	return err
}
