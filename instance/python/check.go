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
	"github.com/faas-infer/faas-infer/model/bundle"
	"github.com/faas-infer/faas-infer/model/savedmodel"
)

// Check looks at a bundle without installing or running any of it: the files that
// the manifest names, that the handler can be read and has handle, and that a
// SavedModel without a handler says what it serves.
func Check(ctx context.Context, manifest string) error {
	b, err := open(manifest)
	if err != nil {
		return err
	}
	if b.Handler == "" {
		return checkSavedModel(filepath.Join(b.Dir, b.Model))
	}
	return checkHandler(ctx, b)
}

// checkSavedModel refuses what TensorFlow could load and not serve. What cannot be
// read here TensorFlow may still know.
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

// looker prints what is wrong with a handler's source.
const looker = `import ast, sys
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
	if !env.Made() { // Any Python reads the same language.
		program = environment.Program()
	}
	c := exec.CommandContext(ctx, program, "-I", "-c", looker, filepath.Join(b.Dir, b.Handler), b.Handler)
	text, err := c.CombinedOutput()
	if err != nil {
		return errors.New(strings.TrimSpace(string(text)))
	}
	return nil
}
