package build

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/openfaas/faas-provider/types"

	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/provider/annotation"
)

// check checks a bundle before it is put in its place. It checks links again: those that
// stay in the context may lead out of the part of it that is the bundle.
func (h *Handler) check(ctx context.Context, dir string, answer *answer) error {
	if err := Contained(dir); err != nil {
		return err
	}
	b, err := bundle.OpenDir(dir)
	if err != nil {
		return err
	}
	if err := checkAnnotations(b); err != nil {
		return err
	}
	if !b.IsProgram() {
		return h.checkModel(ctx, b, answer)
	}
	if command := strings.Fields(b.Process)[0]; b.ProcessFile() == "" {
		if !installed(command) && !strings.HasPrefix(command, "/home/app/") {
			answer.log("Warning: this machine has no program %s, which the bundle's process starts.", command)
		}
	}
	return nil
}

// installed reports whether functions find a program on this machine.
func installed(command string) bool {
	files := []string{command}
	if !strings.Contains(command, "/") {
		files = nil
		for _, dir := range filepath.SplitList(bundle.ProgramPath) {
			files = append(files, filepath.Join(dir, command))
		}
	}
	return slices.ContainsFunc(files, func(file string) bool {
		_, err := exec.LookPath(file)
		return err == nil
	})
}

// checkModel checks a model with the engine, and installs the Python packages it needs.
func (h *Handler) checkModel(ctx context.Context, b *bundle.Bundle, answer *answer) error {
	if h.options.CheckModel != nil {
		for _, one := range b.Registered() {
			file, subject := b.ModelPath(), cmp.Or(one.Model, b.Handler, b.ServerURL)
			if !b.Whole() {
				file = filepath.Join(b.Dir, one.Model)
			}
			if err := h.options.CheckModel(ctx, file); err != nil {
				return fmt.Errorf("model %s: %w", subject, err)
			}
			answer.log("The model %s can be read.", subject)
		}
	}
	if h.options.Install == nil || !b.InPython() && !b.Upstream() {
		return nil
	}
	answer.log("Making the environment of the engine %s ready; the first time takes a minute or two.", b.Engine)
	began := time.Now()
	if err := h.options.Install(ctx, filepath.Join(b.Dir, bundle.ManifestFile)); err != nil {
		return err
	}
	answer.log("The environment is ready after %.1f s.", time.Since(began).Seconds())
	return nil
}

// checkAnnotations checks the annotations that the bundle sets for its deployments. Each
// deployment checks them again, together with its own.
func checkAnnotations(b *bundle.Bundle) error {
	_, err := annotation.Parse(types.FunctionDeployment{Service: "f", Image: "f", Annotations: &b.Annotations})
	if wrong := new(annotation.Error); errors.As(err, &wrong) {
		return fmt.Errorf("annotations in %s: %w", bundle.ManifestFile, err)
	}
	return err
}
