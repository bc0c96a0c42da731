package convert

import (
	"bufio"
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/instance/python/environment"
	"github.com/faas-infer/faas-infer/model/tensor"
)

//go:embed scripts/*.py
var scripts embed.FS

// job is one conversion for a script.
type job struct {
	From, To Kind
	Out      string
	work     string
}

// result is what a script reports at its end.
type result struct {
	Inputs   []tensor.Info     `json:"inputs"`
	Outputs  []string          `json:"outputs"`
	Opset    int               `json:"opset"`
	Versions map[string]string `json:"versions"`
	Cases    []files           `json:"cases"`
}

// files names the files of the arrays of one batch size, in the work directory.
type files struct {
	Rows   int      `json:"rows"`
	Inputs []string `json:"inputs"`
	Old    []string `json:"old"`
	New    []string `json:"new"`
}

// event is one line of a script's output.
type event struct {
	Step      string     `json:"step"`
	Done      *result    `json:"done"`
	Error     string     `json:"error"`
	Operators []Operator `json:"operators"`
}

// Operator is an operator that ONNX or the converter lacks.
type Operator struct {
	// Type is its name in the model's framework.
	Type string `json:"type"`
	// Count is the number of such nodes in the model, if known.
	Count int `json:"count"`
	// Example is the name of one such node, "" if unknown.
	Example string `json:"example"`
}

// UnsupportedError lists the operators that prevent a conversion.
type UnsupportedError struct {
	Reason    string
	Operators []Operator
}

// Error names the operators and the remedies.
func (e *UnsupportedError) Error() string {
	var names []string
	for _, o := range e.Operators {
		name := o.Type
		if o.Example != "" {
			name += fmt.Sprintf(" (%d times, for example %s)", o.Count, o.Example)
		}
		names = append(names, name)
	}
	return fmt.Sprintf("%s: %s. Replace them in the model, or serve the model unconverted with engine: tensorflow or python", e.Reason, strings.Join(names, ", "))
}

// call runs the converter's script in a process.
func (o Options) call(ctx context.Context, e environment.Environment, j job) (*result, error) {
	if err := unpack(j.work); err != nil {
		return nil, err
	}
	request, err := o.request(j)
	if err != nil {
		return nil, err
	}
	c := exec.CommandContext(ctx, e.Python, filepath.Join(j.work, j.From.script()))
	c.WaitDelay = 5 * time.Second
	var log tail
	c.Stdin, c.Stderr = bytes.NewReader(request), io.MultiWriter(&log, o.Log)
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, fmt.Errorf("start the converter: %w", err)
	}
	done, failed := o.listen(out)
	err = c.Wait()
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case failed != nil:
		return nil, failed
	case done != nil && err == nil:
		return done, nil
	}
	return nil, fmt.Errorf("the converter ended without a result (%v); its last line: %s", err, log.last())
}

// listen reads the script's events until its end.
func (o Options) listen(out io.Reader) (done *result, err error) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue // The libraries print other lines, too.
		}
		switch {
		case e.Step != "":
			o.Step(e.Step)
		case e.Done != nil:
			done = e.Done
		case len(e.Operators) > 0:
			err = &UnsupportedError{Reason: e.Error, Operators: e.Operators}
		case e.Error != "":
			err = errors.New(e.Error)
		}
	}
	return done, errors.Join(err, lines.Err())
}

// request encodes the job for the script.
func (o Options) request(j job) ([]byte, error) {
	in, err := filepath.Abs(o.In)
	if err != nil {
		return nil, err
	}
	out, err := filepath.Abs(j.Out)
	if err != nil {
		return nil, err
	}
	work, err := filepath.Abs(j.work)
	if err != nil {
		return nil, err
	}
	names := map[Kind]string{Keras: "keras", SavedModel: "savedmodel", Torch: "torch", ONNX: "onnx"}
	inputs := o.Inputs
	if inputs == nil {
		inputs = []tensor.Info{}
	}
	return json.Marshal(map[string]any{
		"in": in, "out": out, "work": work, "kind": names[j.From], "to": names[j.To], "inputs": inputs, "signature": o.Signature,
		"opset": o.Opset, "trust": o.Trust, "batches": o.Batches, "below": o.Below, "seed": o.Seed,
	})
}

// unpack writes the scripts into a directory.
func unpack(work string) error {
	all, err := scripts.ReadDir("scripts")
	if err != nil {
		return err
	}
	for _, file := range all {
		text, err := scripts.ReadFile("scripts/" + file.Name())
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(work, file.Name()), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// tail keeps the end of a log.
type tail struct{ kept []byte }

// Write implements io.Writer. It keeps the last 4 KiB.
func (t *tail) Write(p []byte) (int, error) {
	const keep = 4096
	t.kept = append(t.kept, p...)
	if len(t.kept) > keep {
		t.kept = bytes.Clone(t.kept[len(t.kept)-keep:])
	}
	return len(p), nil
}

// last returns the last line that is not empty.
func (t *tail) last() string {
	text := strings.TrimSpace(string(t.kept))
	return text[strings.LastIndexByte(text, '\n')+1:]
}
