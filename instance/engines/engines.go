// Package engines lists the engines that run models in a process beside the instance. It
// finds the engine of a bundle or of a prepared directory. ONNX models without a handler
// are not its business: package onnxruntime runs them in the instance itself. Begin with
// [Of]. To add an engine, write a package that returns an engine.Kind and add it to all.
package engines

import (
	"context"
	"path/filepath"

	"github.com/faas-infer/faas-infer/instance/engine"
	"github.com/faas-infer/faas-infer/instance/processing"
	"github.com/faas-infer/faas-infer/instance/python"
	"github.com/faas-infer/faas-infer/instance/upstream"
	"github.com/faas-infer/faas-infer/model/bundle"
)

// all lists the engines. The first that matches a bundle runs it. Python is the last: it
// takes any other bundle and says what is wrong with it.
var all = []engine.Kind{upstream.Kind(), processing.Kind(), python.Kind()}

// IsManifest reports whether a model's file is a bundle's manifest, for one of these
// engines, and not an ONNX file.
func IsManifest(file string) bool { return filepath.Base(file) == bundle.ManifestFile }

// Of returns the engine for the bundle with this manifest file.
func Of(manifest string) engine.Kind {
	for _, k := range all {
		if k.Matches(manifest) {
			return k
		}
	}
	return all[len(all)-1]
}

// Prepared returns the engine that prepared a directory, and false if none did.
func Prepared(dir string) (engine.Kind, bool) {
	for _, k := range all {
		if k.IsPrepared(dir) {
			return k, true
		}
	}
	return engine.Kind{}, false
}

// Open starts the engine that prepared a directory, or Python's if none did.
func Open(ctx context.Context, dir string, o engine.Options) (engine.Opened, error) {
	k, ok := Prepared(dir)
	if !ok {
		k = all[len(all)-1]
	}
	return k.Open(ctx, dir, o)
}
