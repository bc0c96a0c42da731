package kubernetes

import (
	"context"
	"fmt"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/faas-infer/faas-infer/instance/python/environment"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/bundle/image"
)

// onBase builds a function's image. For a function in Python, it installs the function's
// requirements on this machine.
func onBase(ctx context.Context, base v1.Image, b *bundle.Bundle) (v1.Image, error) {
	if b.InPython() {
		var err error
		if base, err = withPackages(ctx, base, b); err != nil {
			return nil, err
		}
	}
	return image.Append(base, b)
}

// withPackages adds the Python packages of a bundle's engine and requirements to a base
// image.
func withPackages(ctx context.Context, base v1.Image, b *bundle.Bundle) (v1.Image, error) {
	theirs, err := image.PythonOf(base)
	if err != nil {
		return nil, err
	}
	requirements := b.Requirements
	if requirements != "" {
		requirements = filepath.Join(b.Dir, requirements)
	}
	env, err := environment.Ensure(ctx, b.Engine, requirements)
	if err != nil {
		return nil, fmt.Errorf("bundle %s: %w", b.Dir, err)
	}
	dir, ours, err := env.Packages()
	if err != nil {
		return nil, err
	}
	if ours != theirs {
		return nil, fmt.Errorf("the base image has Python %s, but %s, which installs packages, is Python %s: set %s to a Python %[1]s", theirs, environment.Program(), ours, environment.ProgramEnv)
	}
	return image.AppendPackages(base, dir)
}
