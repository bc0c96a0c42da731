package python

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/faas-infer/faas-infer/instance/python/environment"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/savedmodel"
)

// Check checks a bundle without installing or running any of it. It checks the files
// that the manifest names, and that the handler parses and has the function handle. A
// SavedModel without a handler must have a signature, and a Keras file must be one.
func Check(ctx context.Context, manifest string) error {
	b, err := open(manifest)
	if err != nil {
		return err
	}
	if file := filepath.Join(b.Dir, b.Model); b.Handler == "" {
		if err := checkKeras(file); err != nil {
			return fmt.Errorf("%s: %w", b.Model, err)
		}
		return checkSavedModel(file)
	}
	return checkHandler(ctx, b)
}

// checkKeras refuses a file that is of another format than its name says.
func checkKeras(file string) error {
	foreign, ok, err := model.RecogniseFile(file)
	if err != nil || !ok || foreign.Format == model.FormatKeras {
		return err
	}
	return fmt.Errorf("not a Keras file: %w", foreign)
}

// checkSavedModel refuses models that TensorFlow could load but not serve. It accepts a
// model that it cannot read: TensorFlow may be able to.
func checkSavedModel(dir string) error {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil // A Keras file.
	}
	m, err := savedmodel.Read(dir, "")
	switch {
	case errors.Is(err, savedmodel.ErrSignature):
		return fmt.Errorf("%w; model.export() and tf.saved_model.save(..., signatures=...) write one, or add a handler that calls the model", err)
	case errors.Is(err, savedmodel.ErrVariables):
		return err
	case err != nil:
		return nil
	}
	for _, in := range m.Inputs() {
		if len(in.Shape) > 0 && in.Shape[0] >= 0 {
			return fmt.Errorf("the model's input %q has a fixed batch of %d: save it with None as the first dimension", in.Name, in.Shape[0])
		}
	}
	return nil
}

// checkScript prints what is wrong with a handler's source.
const checkScript = `import ast, sys
try:
    tree = ast.parse(open(sys.argv[1], "rb").read(), sys.argv[2])
except (SyntaxError, ValueError) as e:
    sys.exit(f"{sys.argv[2]}, line {getattr(e, 'lineno', 0)}: {type(e).__name__}: {getattr(e, 'msg', e)}")
names = set()
for node in tree.body:
    names |= {getattr(node, "name", "")} | {t.id for t in getattr(node, "targets", []) if isinstance(t, ast.Name)}
    names |= {a.asname or a.name for a in getattr(node, "names", []) if isinstance(a, ast.alias)}
if not names & {"handle", "*"}:
    sys.exit(f"{sys.argv[2]} has no function handle(batch)")
`

func checkHandler(ctx context.Context, b *bundle.Bundle) error {
	env, err := environment.Find(ctx, b.Engine, "")
	if err != nil {
		return err
	}
	program := env.Python
	if !env.Made() { // The default Python can parse the handler, too.
		program = environment.Program()
	}
	c := exec.CommandContext(ctx, program, "-I", "-c", checkScript, filepath.Join(b.Dir, b.Handler), b.Handler)
	text, err := c.CombinedOutput()
	if err != nil {
		return errors.New(strings.TrimSpace(string(text)))
	}
	return nil
}
