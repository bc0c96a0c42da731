package children

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/cluster/local/process"
	"github.com/faas-infer/faas-infer/instance/engines"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/provider/latency"
	"github.com/faas-infer/faas-infer/provider/store"
	"github.com/faas-infer/faas-infer/provider/web"
)

// Kept stores what is known of model files over a restart. *store.Store implements it.
type Kept interface {
	Models() (map[string]store.Model, error)
	PutModel(file string, m store.Model) error
	DeleteModels(files []string) error
}

// modelCache remembers the hashes of model files and where the models are prepared, so that
// no file is read twice. With keep it does so over a restart, too. Files are read at the same
// time, but no file is read twice at the same time.
type modelCache struct {
	// reading locks by path.
	reading web.KeyedMutex
	kept    Kept
	// preparer identifies what prepares models, for kept.
	preparer string
	log      zerolog.Logger
	// Largest is the size in bytes of the largest model that instances here can run, 0 for no bound.
	Largest int64

	mu sync.Mutex
	// seen are the model files that were looked at, by path.
	seen map[string]seenModel
}

// seenModel is what is known of a model file for as long as its stamp holds.
type seenModel struct {
	// stamp is [Stamp] of the model's directory: weights may be in files of their own.
	stamp, hash string
	// ready is the directory of the model as it was prepared last, "" if that is not known, and sizes are the
	// flags of the sizes that it was prepared with.
	ready, sizes string
}

// KeepIn makes the cache remember ONNX files over a restart. It does not remember bundles
// that Python or a model server runs: their hash depends on the interpreter, too, which no
// stamp covers.
func (c *modelCache) KeepIn(kept Kept, log zerolog.Logger) error {
	known, err := kept.Models()
	if err != nil {
		return err
	}
	c.kept, c.log, c.preparer, c.seen = kept, log, preparer(), map[string]seenModel{}
	var gone []string
	for file, m := range known {
		if _, err := os.Lstat(file); errors.Is(err, fs.ErrNotExist) {
			gone = append(gone, file)
			continue
		}
		seen := seenModel{stamp: m.Stamp, hash: m.Hash}
		if m.Preparer == c.preparer {
			seen.ready, seen.sizes = m.Prepared, m.Sizes
		}
		c.seen[file] = seen
	}
	return kept.DeleteModels(gone)
}

// preparer identifies what prepares an ONNX model: this program, the library and the CPU.
// After a change of one, models are prepared again.
func preparer() string {
	library, _ := onnxruntime.LibraryPath() // Preparing says what is wrong.
	sum := sha256.New()
	for _, file := range []string{process.Self(), library} {
		if info, err := os.Stat(file); err == nil {
			writeStamp(sum, file, info)
		}
	}
	fmt.Fprintln(sum, onnxruntime.HostCPU())
	return hex.EncodeToString(sum.Sum(nil))
}

// look returns what is known of a model file, with its hash. It reads the file only if
// something in its directory has changed.
func (c *modelCache) look(file string) (seenModel, error) {
	defer c.reading.Lock(file)()
	stamp, err := Stamp(filepath.Dir(file))
	if err != nil {
		return seenModel{}, fmt.Errorf("read model: %w", err)
	}
	if seen, ok := c.known(file); ok && seen.stamp == stamp {
		return seen, nil
	}
	if err := c.fits(file); err != nil {
		return seenModel{}, err
	}
	hash, err := contentHash(file)
	if err != nil {
		return seenModel{}, err
	}
	seen := seenModel{stamp: stamp, hash: hash}
	c.set(file, seen)
	return seen, nil
}

// set notes what is known of a model file.
func (c *modelCache) set(file string, seen seenModel) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == nil {
		c.seen = map[string]seenModel{}
	}
	c.seen[file] = seen
}

// Remember notes the [model.ContentHash] of an ONNX file that has just been written, so that nobody reads the file for
// it. The caller vouches that the directory has not changed since.
func (c *modelCache) Remember(file, hash string) {
	defer c.reading.Lock(file)()
	stamp, err := Stamp(filepath.Dir(file))
	if err != nil {
		return // It is read.
	}
	if seen, ok := c.known(file); !ok || seen.stamp != stamp {
		c.set(file, seenModel{stamp: stamp, hash: hash})
	}
}

// fits refuses a model that no instance here could run, by its size alone: reading it would take a core for as long
// as its size says, also if it is a sparse file. Bundles that Python or a model server runs may have files that
// are never in memory as a whole.
func (c *modelCache) fits(file string) error {
	if c.Largest == 0 || bundle.IsCutting(file) || engines.IsManifest(file) {
		return nil
	}
	if bytes := Weights(file); bytes > c.Largest {
		return latency.Permanent(web.Refuse(http.StatusBadRequest, "the model %s has %d MiB with its weights, and this machine has %d MiB of memory and swap; "+
			"use a smaller model, or a larger machine", filepath.Base(file), bytes>>20, c.Largest>>20))
	}
	return nil
}

func (c *modelCache) known(file string) (seenModel, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen, ok := c.seen[file]
	return seen, ok
}

// looked reports whether the file was looked at before.
func (c *modelCache) looked(file string) bool {
	_, ok := c.known(file)
	return ok
}

// keep remembers where the model as it was looked at is prepared for sizes.
func (c *modelCache) keep(file string, seen seenModel, sizes, prepared string) {
	c.mu.Lock()
	same := c.seen[file].stamp == seen.stamp
	if same {
		seen.ready, seen.sizes = prepared, sizes
		c.seen[file] = seen
	}
	c.mu.Unlock()
	if !same || c.kept == nil || engines.IsManifest(file) {
		return
	}
	err := c.kept.PutModel(file, store.Model{Stamp: seen.stamp, Hash: seen.hash, Prepared: prepared, Sizes: sizes, Preparer: c.preparer})
	if err != nil { // The next start reads and prepares the model again.
		c.log.Warn().Err(err).Str("model", file).Msg("could not remember the model for the next start")
	}
}

// Stamp changes when a file below a directory is edited, replaced, added or removed. It
// covers path, size, times of modification and change, and inode, and reads no file. The time
// of change tells of a replacement with the same size, time of modification and inode, which a
// reproducible archive can make.
func Stamp(dir string) (string, error) {
	stamp := sha256.New()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		writeStamp(stamp, path, info)
		return nil
	})
	return hex.EncodeToString(stamp.Sum(nil)), err
}

// writeStamp writes what changes with a file.
func writeStamp(to io.Writer, path string, info fs.FileInfo) {
	var inode uint64
	var changed int64
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		inode, changed = stat.Ino, stat.Ctim.Nano()
	}
	fmt.Fprintf(to, "%q %d %d %d %d\n", path, info.Size(), info.ModTime().UnixNano(), inode, changed)
}
