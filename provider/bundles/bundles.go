// Package bundles finds what a function's image names: the program, or the models with their variants
// and the ways to cut them over several instances, which papers add. It has what nothing has used
// for an hour removed. It does not choose.
//
// Begin reading at [Registrar]. The files follow a deployment: bundles.go opens an image's bundle,
// registrar.go lists its models, variants.go and cutter.go are where papers add variants and ways to cut
// models, jobs.go shares what children make; unused.go removes what nothing uses.
package bundles

import (
	"context"
	"errors"
	"fmt"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/provider/processes"
)

// Dir is a directory of bundles.
type Dir string

// Open opens the bundle of an image. One that is built in is written again if it is gone.
func (root Dir) Open(image string) (*bundle.Bundle, error) {
	b, err := bundle.Open(string(root), image)
	if !errors.Is(err, bundle.ErrNotFound) || !bundle.Builtin(image) {
		return b, err
	}
	if writeErr := bundle.WriteBuiltin(string(root)); writeErr != nil {
		return nil, errors.Join(err, writeErr)
	}
	return bundle.Open(string(root), image)
}

// Defaults implements [provider.Defaults]: it returns the annotations in the bundle's
// manifest.
func (root Dir) Defaults(_ context.Context, d types.FunctionDeployment) (map[string]string, error) {
	b, err := root.Open(d.Image)
	if err != nil {
		return nil, nil // The deployment reports the error.
	}
	return b.Annotations, nil
}

// Program implements [processes.Bundles].
func (root Dir) Program(image string) (processes.Program, error) {
	b, err := root.Open(image)
	if err != nil {
		return processes.Program{}, err
	}
	if err := b.CheckProgram(); err != nil {
		return processes.Program{}, fmt.Errorf("image %q: %w", image, err)
	}
	fingerprint, err := b.Fingerprint()
	if err != nil {
		return processes.Program{}, fmt.Errorf("image %q: %w", image, err)
	}
	return processes.Program{Dir: b.Dir, Env: b.Environment(), Network: b.Network, Fingerprint: fingerprint}, nil
}
