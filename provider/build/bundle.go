package build

import (
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/faas-infer/faas-infer/model/bundle"
)

// handlerDir is the directory below the template's into which faas-cli puts the
// function's own files.
const handlerDir = "function"

// build makes a bundle from the tar in body. It returns the image's name even with an
// error, if the name is known.
func (h *Handler) build(ctx context.Context, body io.Reader, answer *answer) (image string, err error) {
	staged, err := bundle.NewStaged(h.options.Root)
	if err != nil {
		return "", err
	}
	defer func() {
		if err := staged.Discard(); err != nil {
			// The next sweep tries again.
			h.options.Logger.Warn().Err(err).Msg("a build's files could not be removed")
		}
	}()
	limits := Limits{Bytes: h.options.MaxUnpacked, Entries: h.options.MaxEntries, Room: h.room}
	content, err := UnpackContext(ctx, body, staged.Dir, limits)
	if err != nil {
		return "", err
	}
	image = content.Config.Image
	location, err := h.locate(image)
	if err != nil {
		return image, err
	}
	answer.log("Unpacked: %d files, %d KiB.", content.Files, content.Bytes>>10)
	notes(content.Config, answer)
	if err := h.prepare(ctx, staged.Dir, location, answer); err != nil {
		return image, err
	}
	return image, h.finish(ctx, image, staged, answer)
}

// locate returns the location of an image's bundle, or an error if the image may not be made.
func (h *Handler) locate(image string) (location string, err error) {
	if location, err = bundle.Path(image); err == nil && h.options.Publish == nil && bundle.Builtin(image) {
		err = fmt.Errorf("%w %q: this image is built in and other functions use it; give the build another name", bundle.ErrImage, image)
	}
	return location, err
}

// prepare makes the files in a directory the bundle of a location ([bundle.Path]), and checks it.
func (h *Handler) prepare(ctx context.Context, dir, location string, answer *answer) error {
	if err := compileHandler(ctx, dir, answer); err != nil {
		return err
	}
	if err := arrange(dir, path.Base(path.Dir(location)), answer); err != nil {
		return err
	}
	return h.check(ctx, dir, answer)
}

// finish puts a bundle in its place, or publishes it.
func (h *Handler) finish(ctx context.Context, image string, staged *bundle.Staged, answer *answer) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("the client went away: %w", err)
	}
	if h.options.Publish != nil {
		return h.publish(ctx, image, staged.Dir, answer)
	}
	h.install.Lock()
	defer h.install.Unlock()
	b, err := bundle.Install(h.options.Root, image, staged)
	if err != nil {
		return err
	}
	answer.log("The bundle of %s is %s.", image, b.Dir)
	return nil
}

// publish hands a bundle to Options.Publish, which stores it instead of Root.
func (h *Handler) publish(ctx context.Context, image, dir string, answer *answer) error {
	b, err := bundle.OpenDir(dir)
	if err != nil {
		return err
	}
	if err := h.options.Publish(ctx, image, b, answer.log); err != nil {
		return fmt.Errorf("publish the image: %w", err)
	}
	return nil
}

// notes tells the client which of its settings have no effect.
func notes(c ContextConfig, answer *answer) {
	for name, value := range c.BuildArgs {
		if value == "" {
			delete(c.BuildArgs, name) // faas-cli sends some empty ones itself.
		}
	}
	if len(c.BuildArgs) > 0 {
		answer.log("Build arguments are not used: the builder does not read the Dockerfile.")
	}
	platforms := slices.DeleteFunc(slices.Clone(c.Platforms), func(p string) bool { return p == "" })
	if own := runtime.GOOS + "/" + runtime.GOARCH; len(platforms) > 0 && !slices.Contains(platforms, own) {
		answer.log("This machine is %s, which is not among the platforms %s.", own, strings.Join(platforms, ", "))
	}
}

// arrange makes the unpacked context in dir a bundle. The bundle is the first of the
// context's directory and the function's own directory that has a manifest. Without a
// manifest, it is the one of the two that has the only ONNX model, and arrange writes a
// manifest with the given name.
func arrange(dir, name string, answer *answer) error {
	places := places(dir)
	if sub, ok := manifestPlace(dir); ok {
		if err := raise(dir, sub); err != nil {
			return err
		}
		return bundle.WriteName(dir, name)
	}
	models, err := models(dir, places)
	if err != nil {
		return err
	}
	switch len(models) {
	case 0:
		return noBundle(dir)
	case 1:
	default:
		return fmt.Errorf("the context has %d models, %s, and no %s; add one that names the model, as `name: %s`, `engine: onnx`, `model: %s`, a line each",
			len(models), strings.Join(models, ", "), bundle.ManifestFile, name, models[0])
	}
	if err := raise(dir, path.Dir(models[0])); err != nil {
		return err
	}
	manifest := bundle.Manifest{Name: name, Engine: bundle.EngineONNX, Model: path.Base(models[0])}
	if err := manifest.WriteFile(dir); err != nil {
		return err
	}
	answer.log("There is no %s; the bundle is the model %s.", bundle.ManifestFile, models[0])
	return nil
}

// places returns the directories of a context that may be the bundle: the context's own,
// and that of the function's own files.
func places(dir string) []string {
	// A link of that name could lead anywhere in the context.
	if info, err := os.Lstat(filepath.Join(dir, handlerDir)); err == nil && info.IsDir() {
		return []string{".", handlerDir}
	}
	return []string{"."}
}

// manifestPlace returns the first of a context's places that has a manifest.
func manifestPlace(dir string) (sub string, ok bool) {
	for _, sub := range places(dir) {
		if _, err := os.Lstat(filepath.Join(dir, sub, bundle.ManifestFile)); err == nil {
			return sub, true
		}
	}
	return "", false
}

// noBundle returns the error for a context without manifest and model. It says what to
// add.
func noBundle(dir string) error {
	why := "the context has neither a " + bundle.ManifestFile + " nor a model"
	if _, err := os.Lstat(filepath.Join(dir, "Dockerfile")); err == nil {
		why = "the builder has no container engine and does not use the Dockerfile, and the context has neither a " + bundle.ManifestFile + " nor a model"
	}
	return fmt.Errorf("%s; add %[2]s beside the handler with the lines `name: NAME`, `process: ./handler` and `mode: http`, or a model.onnx", why, bundle.ManifestFile)
}

// models lists the ONNX files in the places.
func models(dir string, places []string) ([]string, error) {
	var found []string
	for _, sub := range places {
		entries, err := os.ReadDir(filepath.Join(dir, sub))
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if e.Type().IsRegular() && path.Ext(e.Name()) == ".onnx" {
				found = append(found, path.Join(sub, e.Name()))
			}
		}
	}
	return found, nil
}

// raise replaces the content of dir by that of its directory sub.
func raise(dir, sub string) error {
	if sub == "." {
		return nil
	}
	aside, err := os.MkdirTemp(dir, "aside-*")
	if err != nil {
		return err
	}
	kept := filepath.Join(aside, "kept")
	if err := os.Rename(filepath.Join(dir, sub), kept); err != nil {
		return err
	}
	others, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range others {
		if e.Name() == filepath.Base(aside) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	own, err := os.ReadDir(kept)
	if err != nil {
		return err
	}
	for _, e := range own {
		if err := os.Rename(filepath.Join(kept, e.Name()), filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return os.RemoveAll(aside)
}
