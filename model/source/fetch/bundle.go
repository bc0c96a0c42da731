package fetch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/source"
	"github.com/faas-infer/faas-infer/model/source/origin"
	"github.com/faas-infer/faas-infer/model/textmodel"
)

// describe makes a bundle of what was downloaded: it writes a manifest unless there is one, and checks it.
func describe(dir string, u source.URI) error {
	if err := flatten(dir); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, bundle.ManifestFile)); errors.Is(err, fs.ErrNotExist) {
		m, err := manifestOf(dir, u)
		if err != nil {
			return err
		}
		if err := m.WriteFile(dir); err != nil {
			return err
		}
	}
	b, err := bundle.OpenDir(dir)
	if err != nil {
		return err
	}
	if b.IsProgram() || b.Handler != "" || b.Requirements != "" || b.Server != "" || b.ServerURL != "" {
		return fmt.Errorf("its %s names a program; what comes from a URI is data only: put programs into "+
			"the function's image", bundle.ManifestFile)
	}
	if b.Engine != bundle.EngineONNX && b.Engine != bundle.EngineTensorFlow {
		return fmt.Errorf("its %s names the engine %q, which runs code of the bundle; from a URI come models of "+
			"the engines %s and %s only: put this one into the function's image", bundle.ManifestFile, b.Engine,
			bundle.EngineONNX, bundle.EngineTensorFlow)
	}
	return nil
}

// leaveOut removes from a finding the files that no model of the folder needs, such as the same weights for PyTorch: they
// are most of the bytes of many a folder of the hub. It returns their layouts: an entry's name is that of the whole
// content. So a file stays whose hash the server does not say.
func leaveOut(found *origin.Finding) (layouts []string) {
	var names []string
	for _, o := range found.Objects {
		if o.Packed || o.Name == "" {
			return nil // What is in it is not known.
		}
		names = append(names, o.Name)
	}
	unused := textmodel.Unused(names)
	found.Objects = slices.DeleteFunc(found.Objects, func(o *origin.Object) bool {
		if o.Sum == "" || !slices.Contains(unused, o.Name) {
			return false
		}
		layouts = append(layouts, layout(o, o.Sum))
		return true
	})
	return layouts
}

// manifestOf returns the manifest that a folder of a model of texts gives, or that of the model in any other directory.
func manifestOf(dir string, u source.URI) (bundle.Manifest, error) {
	name := u.String()
	if u.Scheme == source.HF && u.Folder() {
		name = u.Repository
	}
	folder, err := textmodel.Recognise(dir, name)
	switch {
	case err != nil:
		return bundle.Manifest{}, err
	case folder == nil:
		return manifest(dir, u)
	}
	folder.Manifest.Name = "model"
	return folder.Manifest, nil
}

// flatten moves the content of the only folder up, as archives have one.
func flatten(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || !entries[0].IsDir() {
		return err
	}
	inside := filepath.Join(dir, ".inside") // The folder may have one of its own name.
	if err := os.Rename(filepath.Join(dir, entries[0].Name()), inside); err != nil {
		return err
	}
	below, err := os.ReadDir(inside)
	if err != nil {
		return err
	}
	for _, e := range below {
		if err := os.Rename(filepath.Join(inside, e.Name()), filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return os.Remove(inside)
}

// savedModel is the folder of a SavedModel in bundles that this package makes.
const savedModel = "saved_model"

// manifest finds the model in a directory.
func manifest(dir string, u source.URI) (bundle.Manifest, error) {
	var onnx, keras, saved, all []string
	err := filepath.WalkDir(dir, func(file string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, file)
		all = append(all, name)
		switch {
		case filepath.Ext(name) == ".onnx":
			onnx = append(onnx, name)
		case filepath.Ext(name) == ".keras":
			keras = append(keras, name)
		case filepath.Base(name) == "saved_model.pb":
			saved = append(saved, filepath.Dir(name))
		}
		return err
	})
	if err != nil {
		return bundle.Manifest{}, err
	}
	m := bundle.Manifest{Name: "model", Engine: bundle.EngineONNX}
	switch {
	case len(onnx) > 0:
		if m.Model = chosenFile(onnx); m.Model == "" {
			return m, fmt.Errorf("it has %d ONNX files, %s; name one of them: "+
				"%s", len(onnx), some(onnx), example(u, onnx[0]))
		}
		return m, nil
	case len(saved) == 1:
		m.Engine, m.Model = bundle.EngineTensorFlow, saved[0]
		if saved[0] == "." {
			m.Model = savedModel
			return m, nest(dir, savedModel)
		}
		return m, nil
	case len(keras) == 1:
		m.Engine, m.Model = bundle.EngineTensorFlow, keras[0]
		return m, nil
	}
	return m, fmt.Errorf("it has neither %s nor exactly one model: an .onnx or .keras file, or a SavedModel; it has %s; "+
		"`faas-infer model convert` makes ONNX of other formats", bundle.ManifestFile, contained(all))
}

// chosenFile returns the file that is meant without a manifest: model.onnx, the only one beside no folder, or
// the only one.
func chosenFile(files []string) string {
	top := slices.DeleteFunc(slices.Clone(files), func(name string) bool { return strings.Contains(name, "/") })
	switch {
	case slices.Contains(files, "model.onnx"):
		return "model.onnx"
	case len(top) == 1:
		return top[0]
	case len(files) == 1:
		return files[0]
	case slices.Contains(files, "onnx/model.onnx"): // As on the hub.
		return "onnx/model.onnx"
	}
	return ""
}

// contained says which files there are.
func contained(files []string) string {
	switch len(files) {
	case 0:
		return "no file"
	case 1:
		return "one file, " + some(files)
	}
	return fmt.Sprintf("%d files: %s", len(files), some(files))
}

// some lists a few names.
func some(names []string) string {
	const few = 5
	if len(names) > few {
		return strings.Join(names[:few], ", ") + " …"
	}
	return strings.Join(names, ", ")
}

// example is the URI of one of the files, or what to do for an archive.
func example(u source.URI, file string) string {
	if u.Folder() {
		return u.String() + file
	}
	return "write " + bundle.ManifestFile + " into the archive"
}

// nest moves everything in a directory into a folder there.
func nest(dir, name string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.Rename(filepath.Join(dir, e.Name()), filepath.Join(dir, name, e.Name())); err != nil {
			return err
		}
	}
	return nil
}
