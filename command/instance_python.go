package command

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/instance"
	"github.com/faas-infer/faas-infer/instance/python"
)

// modelName is what a model is called by its file: the file's name, or that of the
// directory of a bundle's manifest.
func modelName(file string) string {
	if python.IsManifest(file) {
		if dir, err := filepath.Abs(filepath.Dir(file)); err == nil {
			return filepath.Base(dir)
		}
	}
	base := filepath.Base(file)
	return strings.TrimSuffix(base, filepath.Ext(base))
}

// inPython reports whether a Python process is to run the model.
func (f *instanceFlags) inPython() bool {
	return f.prepared != "" && python.IsPrepared(f.prepared) || f.prepared == "" && python.IsManifest(f.model)
}

// loadPython starts the process that runs the model, forked from a warm one if there
// is one. What TensorFlow alone runs is run once: the first run takes longer.
func (f *instanceFlags) loadPython(ctx context.Context, logger zerolog.Logger) (instance.Engine, instance.Startup, error) {
	dir := f.prepared
	if dir == "" {
		cache, err := preparedDir("")
		if err != nil {
			return nil, instance.Startup{}, err
		}
		if dir, err = python.Prepare(ctx, f.model, cache); err != nil {
			return nil, instance.Startup{}, err
		}
	}
	prepared, err := python.Read(dir)
	if err != nil {
		return nil, instance.Startup{}, err
	}
	o := python.Options{Prepared: prepared, Threads: f.threads, Warm: f.warm, Logger: logger}
	if f.memory > 0 {
		o.MemoryLimit = max(f.memory-ownMemory, f.memory/2)
	}
	engine, err := python.Open(ctx, o)
	if err != nil {
		return nil, instance.Startup{}, err
	}
	startup := instance.Startup{}
	startup.Load, _ = engine.LoadTime()
	if prepared.Handler == "" {
		began := time.Now()
		if _, err := engine.Run(ctx, 1, python.Sample(engine.Inputs(), 1, 1)); err != nil {
			engine.Close()
			return nil, instance.Startup{}, fmt.Errorf("the model's first run: %w", err)
		}
		startup.FirstRun = time.Since(began)
	}
	return engine, startup, nil
}

// preparePython is "instance prepare" of a bundle that Python runs.
func preparePython(ctx context.Context, out io.Writer, manifest, cache string, asJSON bool) error {
	dir, err := python.Prepare(ctx, manifest, cache)
	if err != nil {
		return err
	}
	if !asJSON {
		_, err := fmt.Fprintln(out, dir)
		return err
	}
	prepared, err := python.Read(dir)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(struct {
		Dir    string          `json:"dir"`
		Python python.Prepared `json:"python"`
	}{dir, prepared})
}
