package guide

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Reader follows a page.
type Reader struct {
	// Dir is the directory in which the page's commands begin.
	Dir string
	// Env is their environment.
	Env []string
	// Replace are pairs of texts of the page and their replacements in the test, as for
	// [strings.NewReplacer]: names of registries and addresses.
	Replace []string
	// Patience is how long one command may take.
	Patience time.Duration
	// Start starts the processes of the shell, [exec.Cmd.Start] if it is nil.
	Start func(*exec.Cmd) error
	// Look looks at a view of the console or presses a button there. Without it, pages that ask for that fail.
	Look func(context.Context, Block) error
	// Log gets a line for each command, with the time that it took.
	Log io.Writer
}

// Environment returns env as in a reader's terminal, without CI. If CI is set, faas-cli
// stores logins in the folder in which it is called, and does not find them in another.
func Environment(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(v string) bool { return strings.HasPrefix(v, "CI=") })
}

// Follow runs the page's blocks until the first failure. The error names the block's line
// and has the output.
func (r *Reader) Follow(ctx context.Context, page []Block) (err error) {
	scratch, err := os.MkdirTemp("", "faas-infer-guide-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	s, err := r.open(scratch)
	if err != nil {
		return err
	}
	var stay []*staying
	defer func() {
		s.close()
		for _, c := range slices.Backward(stay) {
			err = errors.Join(err, c.interrupt(r.Patience))
		}
	}()
	for _, b := range page {
		if b.Omitted != "" {
			fmt.Fprintf(r.Log, "line %d is not run: %s\n", b.Line, b.Omitted)
			continue
		}
		began := time.Now()
		printed, c, err := r.do(ctx, s, b)
		if c != nil {
			stay = append(stay, c)
			printed = c.printed()
		}
		if err != nil {
			err = fmt.Errorf("line %d: %w\n%s%s", b.Line, err, b.Text, printed)
			for _, c := range stay {
				err = fmt.Errorf("%w\n--- %s", err, last(c.printed(), 4000))
			}
			return err
		}
		if b.File == "" {
			fmt.Fprintf(r.Log, "line %d, %v: %s\n", b.Line, time.Since(began).Round(time.Millisecond), title(b.Text))
		}
	}
	return nil
}

// do runs one block.
func (r *Reader) do(ctx context.Context, s *shell, b Block) (printed string, c *staying, err error) {
	ctx, cancel := context.WithTimeout(ctx, r.Patience)
	defer cancel()
	text := r.replace(b.Text)
	switch {
	case b.Language == Console || b.Language == Press:
		if r.Look == nil {
			return "", nil, errors.New("there is no browser for the console")
		}
		return "", nil, r.Look(ctx, b)
	case b.File != "":
		return "", nil, write(filepath.Join(s.in, filepath.FromSlash(b.File)), text)
	case b.Stays:
		c, err = s.start(ctx, b, text)
		return "", c, err
	case b.Language == "python":
		file := filepath.Join(s.scratch, fmt.Sprintf("line-%d.py", b.Line))
		if err := write(file, text); err != nil {
			return "", nil, err
		}
		text = fmt.Sprintf("python3 %q\n", file)
	}
	printed, err = s.run(ctx, text, b.Fails)
	if err == nil {
		err = Shown(r.replace(b.Shows), printed, b.Figures)
	}
	return printed, nil, err
}

func (r *Reader) replace(text string) string { return strings.NewReplacer(r.Replace...).Replace(text) }

func write(file, text string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(text), 0o644)
}

// title returns a command's first line.
func title(text string) string {
	first, rest, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if rest != "" {
		first += " …"
	}
	return first
}

func last(text string, n int) string { return text[max(0, len(text)-n):] }
