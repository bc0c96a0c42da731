// Package script runs an embedded Python script for package convert or quantise. The
// script reads its job from standard input and reports steps and its result, a line of JSON
// each, by tell.py. The package makes no environment and knows no job. Begin with [Run].
package script

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/faas-infer/faas-infer/instance/engine"
	"github.com/faas-infer/faas-infer/postmortem"
)

//go:embed tell.py
var tell []byte

// Options say which script to run.
type Options struct {
	// Python is the interpreter.
	Python string
	// Scripts holds the script and the modules that it imports in a folder scripts, Name is the
	// script's. Dir is the directory into which they are written.
	Scripts fs.FS
	Name    string
	Dir     string
	// Job is the script's input.
	Job []byte
	// Memory is the maximum of the script's private memory in bytes, 0 for none.
	Memory int64
	// Log receives the script's other output. Step is called with the name of each step.
	Log  io.Writer
	Step func(string)
	// Start runs the process to its end, nil for [exec.Cmd.Run].
	Start func(*exec.Cmd) error
}

// Event is one line that a script reports.
type Event struct {
	// Step is the name of a step.
	Step string `json:"step"`
	// Done is the script's result.
	Done json.RawMessage `json:"done"`
	// Error is a sentence that says why there is no result. Line is the whole event.
	Error string `json:"error"`
	Line  []byte `json:"-"`
}

// Run runs a script and returns its last event with a result or an error.
func Run(ctx context.Context, o Options) (Event, error) {
	if err := Unpack(o.Scripts, o.Dir); err != nil {
		return Event{}, err
	}
	c := exec.CommandContext(ctx, o.Python, filepath.Join(o.Dir, o.Name))
	c.Env = append(os.Environ(), engine.NoTelemetry)
	if o.Memory > 0 {
		c.Env = append(c.Env, "FAAS_INFER_SCRIPT_MEMORY="+strconv.FormatInt(o.Memory, 10))
	}
	c.WaitDelay = 5 * time.Second
	var log tail
	events := listener{step: o.Step}
	c.Stdin, c.Stdout, c.Stderr = bytes.NewReader(o.Job), &events, io.MultiWriter(&log, o.Log)
	start := o.Start
	if start == nil {
		start = (*exec.Cmd).Run
	}
	err := start(c)
	last := events.last
	switch {
	case ctx.Err() != nil:
		return Event{}, ctx.Err()
	case o.Memory > 0 && (shortMemory.MatchString(last.Error) || last.Error == "" && err != nil && shortMemory.Match(log.kept)):
		return Event{}, fmt.Errorf("%s needs more than %d MiB of memory for this model", o.Name, o.Memory>>20)
	case last.Error != "":
		return last, nil
	case last.Done != nil && err == nil:
		return last, nil
	}
	if err == nil {
		return Event{}, fmt.Errorf("%s ended without a result: %s", o.Name, postmortem.Cause(0, string(log.kept)))
	}
	why, _ := postmortem.Explain(err, string(log.kept))
	return Event{}, fmt.Errorf("%s ended without a result: %s", o.Name, why)
}

// shortMemory matches what Python and its libraries say when an allocation fails.
var shortMemory = regexp.MustCompile(`MemoryError|bad_alloc|(?i:out of memory|cannot allocate memory|can't allocate memory)`)

// Unpack writes the folder scripts, and tell.py, into a directory.
func Unpack(scripts fs.FS, dir string) error {
	if err := os.WriteFile(filepath.Join(dir, "tell.py"), tell, 0o600); err != nil {
		return err
	}
	names, err := fs.Glob(scripts, "scripts/*.py")
	if err != nil {
		return err
	}
	for _, name := range names {
		text, err := fs.ReadFile(scripts, name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, path.Base(name)), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// maxLine is the maximum length of an event in bytes.
const maxLine = 16 << 20

// listener reads a script's events from its output.
type listener struct {
	step func(string)
	part []byte
	last Event
}

// Write implements io.Writer. It ignores lines that are no events: libraries print, too.
func (l *listener) Write(p []byte) (int, error) {
	l.part = append(l.part, p...)
	for {
		line, rest, ended := bytes.Cut(l.part, []byte("\n"))
		if !ended {
			break
		}
		l.hear(line)
		l.part = rest
	}
	if len(l.part) > maxLine {
		return 0, fmt.Errorf("the script wrote a line of more than %d bytes", maxLine)
	}
	return len(p), nil
}

func (l *listener) hear(line []byte) {
	var e Event
	if json.Unmarshal(line, &e) != nil {
		return
	}
	switch {
	case e.Step != "":
		l.step(e.Step)
	case e.Done != nil || e.Error != "":
		e.Line = bytes.Clone(line)
		l.last = e
	}
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
