package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/profiler"
)

// childModels looks at models in child processes of this program: a file that
// makes the engine crash takes no provider with it, and the memory that a look
// needs is given back.
type childModels struct {
	// prepared is the directory of prepared models.
	prepared string
}

// Check is control.Models': it reads the file and infers its graph.
func (m *childModels) Check(ctx context.Context, file string) error {
	_, err := m.run(ctx, "model", "show", file, "--json")
	return err
}

// Hash is control.Models'.
func (m *childModels) Hash(file string) (string, error) { return model.ContentHash(file) }

// Prepare is control.Models'.
func (m *childModels) Prepare(ctx context.Context, file string) (string, error) {
	out, err := m.run(ctx, "instance", "prepare", "--model", file, "--cache", m.prepared)
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(out)), nil
}

// Measure is control.Models'.
func (m *childModels) Measure(ctx context.Context, file string, maxBatch int, until time.Duration) (string, *profiler.Profile, error) {
	out, err := os.CreateTemp("", "faas-infer-profile-*.json")
	if err != nil {
		return "", nil, err
	}
	out.Close()
	defer os.Remove(out.Name())
	if _, err := m.run(ctx, "profile", "model", file, "--json", "--out", out.Name(), "--prepared", m.prepared,
		"--max-batch", strconv.Itoa(maxBatch), "--until", until.String()); err != nil {
		return "", nil, err
	}
	text, err := os.ReadFile(out.Name())
	if err != nil {
		return "", nil, err
	}
	var measured measuredModel
	if err := json.Unmarshal(text, &measured); err != nil {
		return "", nil, fmt.Errorf("read the measured profile: %w", err)
	}
	if measured.Profile == nil {
		return "", nil, errors.New("the measured profile is empty")
	}
	return measured.Prepared, measured.Profile, measured.Profile.Validate()
}

// run executes this program with other arguments. What it prints on standard
// error is the error's text if it fails.
func (m *childModels) run(ctx context.Context, arguments ...string) ([]byte, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var out, complaint bytes.Buffer
	c := exec.CommandContext(ctx, self, arguments...)
	c.Stdout, c.Stderr = &out, &complaint
	if err := c.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		text := strings.TrimPrefix(lastLine(complaint.String()), "faas-infer: ")
		var exit *exec.ExitError
		if text == "" || errors.As(err, &exit) && !exit.Exited() {
			text = fmt.Sprintf("%s %s failed: %v %s", arguments[0], arguments[1], err, text)
		}
		return nil, errors.New(strings.TrimSpace(text))
	}
	return out.Bytes(), nil
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.TrimSpace(lines[len(lines)-1])
}
