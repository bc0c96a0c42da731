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

// builtin are the images of OpenFaaS's conformance suite, which other machines
// take from a registry, and the folders of their files.
var builtin = map[string]string{
	"functions/alpine:latest":   "alpine",
	"theaxer/redirector:latest": "redirector",
}

// WriteBuiltin writes those built-in bundles for whose images there is nothing
// below root; what is there is left alone.
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
		// An embedded file has no mode.
		return os.Chmod(filepath.Join(dir, manifest.ProcessFile()), 0o755)
	})
	return err
}
