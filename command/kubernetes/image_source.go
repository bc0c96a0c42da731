package kubernetes

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/spf13/pflag"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/bundle/image"
	"github.com/faas-infer/faas-infer/model/bundle/image/debian"
)

// source says which base image to build on, or how to build it.
type source struct {
	base, packages, program, library string
	shell, python                    bool
}

func (s *source) register(flags *pflag.FlagSet) {
	flags.StringVar(&s.packages, "packages", "", "directory that caches Debian's packages (default: in the user's cache)")
	flags.StringVar(&s.program, "program", "", "the program faas-infer (default: the one beside this program)")
	flags.StringVar(&s.library, "onnxruntime", "", "the ONNX Runtime library (default $"+onnxruntime.LibraryEnv+", or the one that make onnxruntime installs)")
	flags.BoolVar(&s.shell, "shell", false, "add a shell and the usual commands, for functions that are scripts")
	flags.BoolVar(&s.python, "python", false, "add Debian's Python, for models in Python and for the provider that measures them")
}

func (s *source) registerBase(flags *pflag.FlagSet) {
	flags.StringVar(&s.base, "base", "", "base image that \"image base\" made: its name in a registry, or its file (default: build a new one)")
	s.register(flags)
}

// image returns the base image: the one of --base, or a new one.
func (s *source) image(ctx context.Context, plain []string) (v1.Image, error) {
	if s.base == "" {
		return s.make(ctx)
	}
	if info, err := os.Stat(s.base); err == nil && info.Mode().IsRegular() {
		images, err := image.ReadFile(s.base)
		if err != nil {
			return nil, err
		}
		return images[0].Image, nil
	}
	if strings.HasSuffix(s.base, ".tar") {
		return nil, fmt.Errorf("--base %s: there is no such file", s.base)
	}
	return image.Fetch(ctx, s.base, nil, image.WithPlain(plain...))
}

func (s *source) make(ctx context.Context) (v1.Image, error) {
	if s.program == "" {
		own, err := os.Executable()
		if err != nil {
			return nil, err
		}
		s.program = filepath.Join(filepath.Dir(own), "faas-infer")
	}
	if s.packages == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("--packages is missing, and there is no default: %w", err)
		}
		s.packages = filepath.Join(cache, "faas-infer", "debian")
	}
	if s.library == "" {
		var err error
		if s.library, err = onnxruntime.LibraryPath(); err != nil {
			return nil, err
		}
	}
	return debian.Function{Packages: s.packages, Program: s.program, Library: s.library, Shell: s.shell, Python: s.python, Revision: report.Commit}.Image(ctx)
}

// openBundle opens a bundle's directory. From a model file it makes a temporary bundle,
// which done removes.
func openBundle(path string) (_ *bundle.Bundle, done func(), err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if info.IsDir() {
		b, err := bundle.OpenDir(path)
		return b, func() {}, err
	}
	root, err := os.MkdirTemp("", "faas-infer-image-*")
	if err != nil {
		return nil, nil, err
	}
	done = func() { _ = os.RemoveAll(root) }
	b, err := bundle.WriteFile(root, "model", bundle.Manifest{}, path)
	if err != nil {
		done()
		return nil, nil, err
	}
	return b, done, nil
}
