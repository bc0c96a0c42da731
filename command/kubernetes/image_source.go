package kubernetes

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
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
	// architecture is that of the image, by Go's name.
	architecture  string
	shell, python bool
}

func (s *source) register(flags *pflag.FlagSet) {
	flags.StringVar(&s.packages, "packages", "", "directory that caches Debian's packages (default: in the user's cache)")
	flags.StringVar(&s.program, "program", "", "the program faas-infer (default: the one beside this program)")
	flags.StringVar(&s.library, "onnxruntime", "", "the ONNX Runtime library (default $"+onnxruntime.LibraryEnv+", or the one that faas-infer setup installs)")
	flags.StringVar(&s.architecture, "architecture", runtime.GOARCH,
		"architecture of the image: "+strings.Join(onnxruntime.Architectures(), " or ")+
			"; for another than this machine's, give the programs of that, too")
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
		return image.OnPlatform(images, s.architecture)
	}
	if strings.HasSuffix(s.base, ".tar") {
		return nil, fmt.Errorf("--base %s: there is no such file", s.base)
	}
	return image.Fetch(ctx, s.base, nil, image.WithPlain(plain...))
}

func (s *source) make(ctx context.Context) (v1.Image, error) {
	if !slices.Contains(onnxruntime.Architectures(), s.architecture) {
		known := strings.Join(onnxruntime.Architectures(), " or ")
		return nil, fmt.Errorf("--architecture %s: it must be %s", s.architecture, known)
	}
	foreign := s.architecture != runtime.GOARCH
	if foreign && s.program == "" {
		return nil, fmt.Errorf("--program is missing: the image for %s needs faas-infer for %[1]s", s.architecture)
	}
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
		if s.library, err = s.defaultLibrary(); err != nil {
			return nil, err
		}
	}
	return debian.Function{
		Packages:     s.packages,
		Architecture: s.architecture,
		Program:      s.program,
		Library:      s.library,
		Shell:        s.shell,
		Python:       s.python,
		Version:      report.Release,
		Revision:     report.Commit,
	}.Image(ctx)
}

// defaultLibrary returns the path of ONNX Runtime for the image's architecture.
func (s *source) defaultLibrary() (string, error) {
	if s.architecture == runtime.GOARCH {
		return onnxruntime.LibraryPath()
	}
	return onnxruntime.InstalledPath(s.architecture)
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
