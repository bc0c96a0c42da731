package bundle

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
)

// builtinFiles are the built-in bundles.
//
//go:embed builtin
var builtinFiles embed.FS

// builtin maps the images of OpenFaaS's conformance suite to the folders of their
// files. Other providers pull these images from a registry.
var builtin = map[string]string{
	"functions/alpine:latest":   "alpine",
	"theaxer/redirector:latest": "redirector",
}

// Builtin reports whether an image is one of the built-in bundles.
func Builtin(image string) bool {
	at, err := Path(image)
	return err == nil && slices.ContainsFunc(slices.Collect(maps.Keys(builtin)), func(name string) bool {
		place, err := Path(name)
		return err == nil && place == at
	})
}

// WriteBuiltin writes the built-in bundles below root. It leaves alone whatever is
// already in a bundle's place.
func WriteBuiltin(root string) error {
	for _, image := range slices.Sorted(maps.Keys(builtin)) {
		place, err := Path(image)
		if err != nil {
			return err
		}
		if _, err := os.Lstat(filepath.Join(root, place)); !errors.Is(err, fs.ErrNotExist) {
			if err != nil {
				return fmt.Errorf("write built-in bundles: %w", err)
			}
			continue
		}
		if err := writeBuiltin(root, image, path.Join("builtin", builtin[image])); err != nil {
			return fmt.Errorf("write built-in bundles: %w", err)
		}
	}
	return nil
}

func writeBuiltin(root, image, from string) error {
	files, err := fs.Sub(builtinFiles, from)
	if err != nil {
		return err
	}
	text, err := fs.ReadFile(files, ManifestFile)
	if err != nil {
		return err
	}
	manifest, err := ParseManifest(text)
	if err != nil {
		return err
	}
	_, err = WriteFiles(root, image, manifest, func(dir string) error {
		if err := os.CopyFS(dir, files); err != nil || manifest.ProcessFile() == "" {
			return err
		}
		// Embedded files are not executable.
		return os.Chmod(filepath.Join(dir, manifest.ProcessFile()), 0o755)
	})
	return err
}
