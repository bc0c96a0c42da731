package debian

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"runtime"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/faas-infer/faas-infer/model/bundle/image"
)

const (
	// Library is the path of ONNX Runtime in the images.
	Library = "/usr/lib/libonnxruntime.so"
	// Provider is the path of the provider's program.
	Provider = "/usr/bin/faas-infer-kubernetes"
	// State is the provider's directory. The provider writes only there and to /tmp.
	State = "/var/lib/faas-infer"
)

// searchPath is the PATH in the images.
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Function describes the base image of functions.
type Function struct {
	// Packages is the directory that caches Debian's packages.
	Packages string
	// Architecture is that of the image, by Go's name, "" for this machine's. Program and Library are of the same.
	Architecture string
	// Program is the file of the program faas-infer, Library that of ONNX Runtime.
	Program, Library string
	// Shell adds a shell and the usual commands, for functions that are scripts.
	Shell bool
	// Python adds Debian's Python, for functions that run in it, and for a provider
	// that measures them.
	Python bool
	// Version is that of the release, "" for none.
	Version string
	// Revision is the commit that the program was built from, for people.
	Revision string
}

// part is the content of one layer. note describes it in the image's history.
type part struct {
	note    string
	entries []image.Entry
}

// Image makes the base image. It downloads missing packages.
func (f Function) Image(ctx context.Context) (v1.Image, error) {
	f.Architecture = cmp.Or(f.Architecture, runtime.GOARCH)
	packages, err := NewSource(ctx, f.Packages, f.Architecture)
	if err != nil {
		return nil, err
	}
	common, err := packages.Download(ctx, Packages)
	if err != nil {
		return nil, err
	}
	system, err := Base(ctx, common)
	if err != nil {
		return nil, err
	}
	parts := []part{{"Debian's libraries", system}}
	if f.Shell {
		files, err := packages.Download(ctx, Tools)
		if err != nil {
			return nil, err
		}
		tools, err := Shell(ctx, files)
		if err != nil {
			return nil, err
		}
		parts = append(parts, part{"a shell", tools})
	}
	labels := map[string]string{
		"org.opencontainers.image.title":       "faas-infer",
		"org.opencontainers.image.description": "The base image of faas-infer's functions",
		"org.opencontainers.image.licenses":    "MIT",
		image.TLSLabel:                         "true",
	}
	if f.Python {
		interpreter, version, err := python(ctx, packages, common)
		if err != nil {
			return nil, err
		}
		parts = append(parts, part{"Python", interpreter})
		labels[image.PythonLabel] = version
	}
	library, err := image.File(Library[1:], 0o755, f.Library)
	if err != nil {
		return nil, fmt.Errorf("the ONNX Runtime library: %w; run `faas-infer setup`", err)
	}
	program, err := image.File(image.Program[1:], 0o755, f.Program)
	if err != nil {
		return nil, fmt.Errorf("the program: %w; put faas-infer beside this program, or name it with --program", err)
	}
	parts = append(parts, part{"ONNX Runtime", []image.Entry{library}}, part{"faas-infer", []image.Entry{program}})
	if f.Version != "" {
		labels["org.opencontainers.image.version"] = f.Version
	}
	if f.Revision != "" {
		labels["org.opencontainers.image.revision"] = f.Revision
	}
	config := v1.Config{
		Entrypoint: []string{image.Program}, User: fmt.Sprintf("%d:%[1]d", image.User), WorkingDir: "/home/nonroot", Labels: labels,
		Env:          []string{"PATH=" + searchPath, "FAAS_INFER=" + image.Program, "FAAS_INFER_ONNXRUNTIME=" + Library},
		ExposedPorts: map[string]struct{}{"8080/tcp": {}},
	}
	return compose(empty.Image, config, f.Architecture, parts)
}

// python lists the files of Debian's Python and its dependencies but those of the common packages,
// and returns its version.
func python(ctx context.Context, from *Source, common []string) ([]image.Entry, string, error) {
	files, err := from.Download(ctx, Python)
	if err != nil {
		return nil, "", err
	}
	return Interpreter(ctx, slices.DeleteFunc(files, func(file string) bool { return slices.Contains(common, file) }))
}

// ForProvider makes the provider's image from the base image of functions and the
// program's file.
func ForProvider(functions v1.Image, program string) (v1.Image, error) {
	entry, err := image.File(Provider[1:], 0o755, program)
	if err != nil {
		return nil, fmt.Errorf("the provider's program: %w; name it with --provider-program", err)
	}
	before, err := functions.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read the base image: %w", err)
	}
	config := before.Config
	if len(config.Entrypoint) == 0 || config.Entrypoint[0] != image.Program || config.Labels[image.Label] != "" {
		return nil, errors.Join(image.ErrBase, errors.New("the provider's image needs the base image that `faas-infer-kubernetes image base` makes"))
	}
	config.Entrypoint, config.Cmd, config.WorkingDir = []string{Provider}, []string{"provider"}, State
	config.Env = append(append([]string(nil), config.Env...), "XDG_STATE_HOME=/var/lib", "XDG_CACHE_HOME="+State+"/cache", "TMPDIR=/tmp")
	config.ExposedPorts = map[string]struct{}{"8081/tcp": {}}
	config.Labels = maps.Clone(config.Labels)
	config.Labels["org.opencontainers.image.title"] = "faas-infer-kubernetes"
	config.Labels["org.opencontainers.image.description"] = "An OpenFaaS provider that serves models within a latency objective"
	return compose(functions, config, before.Architecture, []part{
		{"faas-infer-kubernetes", []image.Entry{{Name: State[1:], Mode: fs.ModeDir | 0o700, Owner: image.User}, entry}},
	})
}

// compose adds layers to an image and sets its config and architecture.
func compose(below v1.Image, config v1.Config, architecture string, parts []part) (v1.Image, error) {
	below = mutate.MediaType(mutate.ConfigMediaType(below, types.OCIConfigJSON), types.OCIManifestSchema1)
	var added []mutate.Addendum
	for _, p := range parts {
		layer, err := image.Layer(p.entries)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.note, err)
		}
		added = append(added, mutate.Addendum{Layer: layer, MediaType: types.OCILayer,
			History: v1.History{Created: v1.Time{Time: image.Epoch}, CreatedBy: "faas-infer: " + p.note}})
	}
	made, err := mutate.Append(below, added...)
	if err != nil {
		return nil, fmt.Errorf("add the layers to the image: %w", err)
	}
	file, err := made.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.Created, file.OS, file.Architecture, file.Config = v1.Time{Time: image.Epoch}, "linux", architecture, config
	return mutate.ConfigFile(made, file)
}
