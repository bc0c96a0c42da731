// Package image puts bundles into container images and takes them out again. On
// Kubernetes a function's image is an image in a registry, not a directory. The
// package does not make base images; package debian does. Begin with [Append] and
// [Pull].
//
// An image with a bundle has the label [Label] in its config. The label names the
// bundle's directory in the image's file system. [Pull] needs nothing else, so any
// tool can make such an image. Images that [Append] makes have the whole bundle in
// one layer with an annotation of the same name, and Pull reads only that layer.
// [WriteFile] and [ReadFile] store images in one file, an OCI archive that docker
// load takes too.
package image

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/faas-infer/faas-infer/model/bundle"
)

const (
	// Label is the label of an image that names the directory of its bundle, and
	// the annotation of the layer that has the whole bundle.
	Label = "dev.faas-infer.bundle"
	// TLSLabel is the label of base images, and so of the images made on them, whose
	// [Program] knows the option --tls. Its value is "true".
	TLSLabel = "dev.faas-infer.tls"
	// Dir is the bundle's directory in the images that Append makes.
	Dir = "/bundle"
	// Program is the path of the program faas-infer in base images.
	Program = "/usr/bin/faas-infer"
	// Listen is the address of the server in an instance: of both families, as far as its pod
	// has them.
	Listen = "tcp://:8080"
	// User is the user and group that images run as. It is not root.
	User = 65532
)

// watchdog is the command of [Program] that serves a bundle's program.
const watchdog = "watchdog"

// ErrBase is wrapped by Append's error for an image that is not a base image of
// functions.
var ErrBase = errors.New("not an image for functions")

// Epoch is the time of all files in the images of this package. So the same content
// gives the same image.
var Epoch = time.Unix(0, 0).UTC()

// Append makes a function's image: a base image, whose entrypoint is [Program], and
// the bundle at [Dir]. A model's image needs arguments to run, as
// "instance --model /bundle/model.onnx"; a program's image needs none.
func Append(base v1.Image, b *bundle.Bundle) (v1.Image, error) {
	config, err := base.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("read the base image: %w", err)
	}
	if !slices.Equal(config.Config.Entrypoint, []string{Program}) {
		return nil, fmt.Errorf("%w: its entrypoint is %q, not %s; make one with `faas-infer-kubernetes image base`", ErrBase, config.Config.Entrypoint, Program)
	}
	if b.InPython() && !hasPackages(base) {
		return nil, fmt.Errorf("%w in Python: it lacks the packages of the engine %s; make the image with `faas-infer-kubernetes image function`", ErrBase, b.Engine)
	}
	layer, err := bundleLayer(b.Dir, config.Config.Labels[Label] != "")
	if err != nil {
		return nil, fmt.Errorf("bundle %s: %w", b.Dir, err)
	}
	image, err := mutate.Append(base, mutate.Addendum{
		Layer: layer, MediaType: types.OCILayer,
		Annotations: map[string]string{Label: Dir},
		History:     v1.History{Created: v1.Time{Time: Epoch}, CreatedBy: "faas-infer: bundle " + b.Name},
	})
	if err != nil {
		return nil, fmt.Errorf("add the bundle to the image: %w", err)
	}
	if config, err = image.ConfigFile(); err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	describe(&config.Config, b)
	return mutate.ConfigFile(image, config)
}

// describe writes the bundle's labels, command and environment into an image's
// config.
func describe(c *v1.Config, b *bundle.Bundle) {
	c.Labels = maps.Clone(c.Labels)
	if c.Labels == nil {
		c.Labels = make(map[string]string)
	}
	c.Labels[Label] = Dir
	c.Labels["org.opencontainers.image.title"] = b.Name
	if b.Description != "" {
		c.Labels["org.opencontainers.image.description"] = b.Description
	}
	c.WorkingDir = Dir
	c.Cmd = nil
	if !b.IsProgram() {
		return
	}
	c.Cmd = []string{watchdog, "--bundle", Dir, "--listen", Listen}
	env := b.Environment()
	c.Env = slices.DeleteFunc(slices.Clone(c.Env), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		_, ours := env[name]
		return ours
	})
	for _, name := range slices.Sorted(maps.Keys(env)) {
		c.Env = append(c.Env, name+"="+env[name])
	}
}

// bundleLayer is the layer of a bundle's directory. If alone, it hides the files
// that the base image has there.
func bundleLayer(dir string, alone bool) (v1.Layer, error) {
	inside := strings.TrimPrefix(Dir, "/")
	var entries []Entry
	if alone {
		entries = append(entries, Entry{Name: inside, Mode: fs.ModeDir | 0o755}, Bytes(path.Join(inside, ".wh..wh..opq"), 0o644, nil))
	}
	files, err := Directory(dir, inside)
	if err != nil {
		return nil, err
	}
	return Layer(append(entries, files...))
}

// Directory lists a directory's files as entries of an image below the name to.
// Every user may read all files, and execute those that the owner may execute; only
// root may write. A symbolic link that leads out of the directory is an error.
func Directory(dir, to string) ([]Entry, error) {
	var entries []Entry
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		entry, err := file(name, path.Join(to, filepath.ToSlash(below)), e)
		if err != nil {
			return err
		}
		if entry.Link != "" && !contained(filepath.ToSlash(below), entry.Link) {
			return fmt.Errorf("the symbolic link %s leads to %s, out of the bundle; put the file there instead", below, entry.Link)
		}
		entries = append(entries, entry)
		return nil
	})
	return entries, err
}

// contained reports whether a link in a directory leads to something in it.
func contained(name, target string) bool {
	return !path.IsAbs(target) && filepath.IsLocal(path.Join(path.Dir(name), target))
}
