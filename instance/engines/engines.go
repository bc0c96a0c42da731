// Package engines lists the engines that run models in a process beside the instance, and
// finds the one for a bundle or for a prepared directory. To add an engine, write a
// package with an engine.Kind and add it to all. ONNX models without a handler run in the
// instance itself, by package onnxruntime.
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

// all are the engines. The first that matches a bundle runs it; Python, the last, says
// what is wrong with the others.
var all = []engine.Kind{upstream.Kind(), processing.Kind(), python.Kind()}

// IsManifest reports whether a model's file is the manifest of a bundle, which an engine
// of these runs, and no ONNX file.
func IsManifest(file string) bool { return filepath.Base(file) == bundle.ManifestFile }

// Of is the engine for the bundle that has a manifest.
func Of(manifest string) engine.Kind {
	for _, k := range all {
		if k.Matches(manifest) {
			return k
		}
	}
	return all[len(all)-1]
}

// Prepared is the engine that prepared a directory; false if none of these did.
func Prepared(dir string) (engine.Kind, bool) {
	for _, k := range all {
		if k.IsPrepared(dir) {
			return k, true
		}
	}
	return engine.Kind{}, false
}

// Open starts what runs a prepared directory.
func Open(ctx context.Context, dir string, o engine.Options) (engine.Opened, error) {
	k, ok := Prepared(dir)
	if !ok {
		k = all[len(all)-1]
	}
	return k.Open(ctx, dir, o)
}
