package children

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/faas-infer/faas-infer/cluster/local/cgroup"
	"github.com/faas-infer/faas-infer/cluster/local/process"
	"github.com/faas-infer/faas-infer/filelock/workdir"
	"github.com/faas-infer/faas-infer/instance/onnxruntime"
	"github.com/faas-infer/faas-infer/model"
	"github.com/faas-infer/faas-infer/postmortem"
	"github.com/faas-infer/faas-infer/provider/latency"
)

// Weight is a child's CPU priority when cores are short.
type Weight bool

const (
	// Foreground is for work that somebody waits for.
	Foreground Weight = false
	// Background is for other work.
	Background Weight = true
)

// bounds are what a child may take.
type bounds struct {
	process.Bounds
	// time is the wall-clock time after which it is killed.
	time time.Duration
	// free: the memory is what the machine had free. It may have more at another time.
	free bool
}

const (
	// baseMemory is what any child may take in bytes; coreMemory is added for each core up to
	// maxCores, whose threads have stacks. A model may take weightsMemory times its size more: the file, the
	// decoded weights, and two sessions with packed copies.
	baseMemory    = 6 << 30
	coreMemory    = 16 << 20
	maxCores      = 64
	weightsMemory = 8
	// baseTime, coreTime and readRate (bytes a second) bound the processor time.
	baseTime = 60 * time.Second
	coreTime = 10 * time.Second
	readRate = 4 << 20
	// usefulRuns is how many runs of the whole objective there may be.
	usefulRuns = 40
	// patientBy is the factor of work that nobody waits for: a full profile is measured on all
	// numbers of threads.
	patientBy = 5
	// waitingBy is the factor between a child's processor time and its wall-clock time: other work
	// may have the cores.
	waitingBy = 4
	// anyObjective is the objective of a child that knows none, or none shorter.
	anyObjective = time.Minute
	// makingTime is the processor time of a child that makes something of models: variants or parts.
	makingTime = 4 * time.Hour
	// maxOutput is how much a child may print, in bytes; keptComplaint how much is kept of the
	// beginning and of the end of what it says of errors.
	maxOutput     = 16 << 20
	keptComplaint = 64 << 10
)

// boundsOf returns the bounds of a child that prepares or measures a model of a size in bytes.
// limit is what an instance may take, 0 if the deployment does not say.
//
// The child may use 60 s of processor time, 10 s for each core, 1 s for each 4 MiB of the model
// and 40 times the objective; five times that if nobody waits for it. It may last four times as
// long. It may take 6 GiB of memory, 16 MiB for each of up to 64 cores and 8 times the model's size; more if
// limits.memory is more than 3 GiB: twice that.
func boundsOf(w Weight, objective time.Duration, bytes, limit int64) bounds {
	cores := runtime.NumCPU()
	if objective <= 0 {
		objective = anyObjective
	}
	cpu := baseTime + time.Duration(cores)*coreTime + time.Duration(bytes/readRate)*time.Second + usefulRuns*objective
	if w == Background {
		cpu *= patientBy
	}
	memory := memoryOf(limit) + weightsMemory*bytes
	return bounds{Bounds: process.Bounds{Memory: memory, CPU: cpu}, time: waitingBy * cpu}
}

// memoryOf is what a process may take beside a model whose instances may take limit, both in bytes.
func memoryOf(limit int64) int64 {
	return max(baseMemory, 2*limit) + int64(min(runtime.NumCPU(), maxCores))*coreMemory
}

// bundleBounds returns the bounds of a child that prepares or measures a bundle that Python or a model
// server runs. limit is what an instance may take, 0 if the deployment does not say, and free what the
// machine has now, both in bytes.
//
// Nothing of the bundle tells what it loads. So each of its processes may take what one of an ONNX model
// may, without limits.memory all that is free, and any processor time: it may have to install its requirements.
func bundleBounds(limit, free int64) bounds {
	b := bounds{Bounds: process.Bounds{Memory: memoryOf(limit)}, time: waitingBy * makingTime}
	if limit == 0 && free > b.Memory {
		b.Memory, b.free = free, true
	}
	return b
}

// freeMemory returns the memory in bytes that new processes may take without swapping, 0 if it is unknown.
func freeMemory() int64 {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(text), "MemAvailable:")
	var free int64
	if _, err := fmt.Sscanf(after, "%d kB", &free); err != nil {
		return 0
	}
	free <<= 10
	if limit := cgroup.Own().Memory; limit > 0 {
		free = min(free, limit)
	}
	return free
}

// maxRun is the processor time of one run of the model with one request from which it is hopeless:
// ten times the objective and 5 s. That leaves room for a slow machine, and for sizes that requests
// do not have.
func maxRun(objective time.Duration) time.Duration { return 5*time.Second + 10*objective }

// errDied is wrapped by Run's error if the child did not end by itself.
var errDied = errors.New("the process of")

// childDir is the beginning of the names of children's directories of temporary files.
const childDir = "faas-infer-child-"

// Run executes this program with other arguments and returns its standard output. The child makes
// something of the models at a path, "" for none, and may take 8 times the size of all files there
// of memory. If it fails, the error says what the child said, or how it died.
func (m *Models) Run(ctx context.Context, weight Weight, of string, arguments ...string) ([]byte, error) {
	bytes := int64(0)
	_ = filepath.WalkDir(of, func(path string, _ fs.DirEntry, err error) error {
		if info, failed := os.Stat(path); err == nil && failed == nil && info.Mode().IsRegular() {
			bytes += info.Size()
		}
		return nil // The child says what it cannot read.
	})
	b := bounds{Bounds: process.Bounds{Memory: boundsOf(weight, 0, bytes, 0).Memory, CPU: makingTime}, time: waitingBy * makingTime}
	return m.runBound(ctx, weight, b, nil, arguments...)
}

// runBound executes this program with other arguments and returns its standard output. The
// program inherits file, unless file is nil. If it fails, the error says what the program
// said, or how it died. The error wraps [latency.ErrPermanent] if another try would fail, too.
func (m *Models) runBound(ctx context.Context, weight Weight, b bounds, file *os.File, arguments ...string) ([]byte, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	// A killed child's temporary files are removed with its directory.
	for _, dir := range workdir.Sweep("", childDir+"*") {
		endRest(dir)
	}
	temporary, err := workdir.Make("", childDir)
	if err != nil {
		return nil, err
	}
	defer temporary.Remove()
	limited, cancel := context.WithTimeout(ctx, b.time)
	defer cancel()
	out, complaint := &output{max: maxOutput}, &ends{}
	c := exec.CommandContext(limited, self, arguments...)
	c.Env = append(os.Environ(), "TMPDIR="+temporary.Path, b.Env())
	c.Stdout, c.Stderr = out, complaint
	if file != nil {
		c.ExtraFiles = []*os.File{file}
	}
	err = m.runChild(c, weight)
	if err != nil {
		endRest(temporary.Path)
	}
	what := fmt.Sprintf("`%s %s`", arguments[0], arguments[1])
	switch {
	case out.over:
		return nil, fmt.Errorf("%s printed more than %d MiB", what, maxOutput>>20)
	case err == nil:
		return out.text, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case limited.Err() != nil:
		return nil, fmt.Errorf("%s did not end within %v and used %v of processor time: the machine has too little of it, or the process was stopped",
			what, b.time.Round(time.Second), used(c).Round(time.Second))
	}
	return nil, b.explain(err, what, used(c), complaint.String())
}

// restTime is how long the processes that endRest kills may take to end.
const restTime = 5 * time.Second

// endRest kills what a child that was killed has left: it started a model server in a session of its own,
// and that has started others. All inherit the child's directory of temporary files.
func endRest(temporary string) {
	// A process that cannot be killed keeps nobody from going on.
	_ = process.KillAll(func() ([]int, error) { return process.Marked("TMPDIR=" + temporary) }, restTime)
}

// used is the processor time of a process that has ended, and of those that it waited for.
func used(c *exec.Cmd) time.Duration {
	if c.ProcessState == nil {
		return 0
	}
	return c.ProcessState.UserTime() + c.ProcessState.SystemTime()
}

var (
	// shortMemory matches what programs and the engine say when an allocation fails.
	shortMemory = regexp.MustCompile(`(?i)bad_alloc|failed to allocate|out of memory|cannot allocate memory|can't allocate memory|unable to allocate|memoryerror`)
	// allocation matches what the engine says of the allocation itself.
	allocation = regexp.MustCompile(`(?i)failed to allocate memory for requested buffer of size \d+`)
	// unchanging matches errors that the next try repeats.
	unchanging = regexp.MustCompile(`does not run on sample inputs|not an ONNX model`)
)

// explain says why a child failed, from the error of its Wait, its processor time and what it said.
func (b bounds) explain(err error, what string, cpu time.Duration, said string) error {
	text, clean := postmortem.Explain(err, said)
	var exit *exec.ExitError
	killed := false
	if errors.As(err, &exit) {
		status, _ := exit.Sys().(syscall.WaitStatus)
		killed = status.Signaled() && status.Signal() == syscall.SIGKILL
	}
	switch {
	case killed && b.CPU > 0 && cpu > b.CPU-2*time.Second:
		return latency.Permanent(fmt.Errorf("the model takes too long: %s used %v of processor time, which is the most for its size and objective; "+
			"use a smaller model, or a longer objective", what, cpu.Round(time.Second)))
	case b.free && b.Memory > 0 && !killed && shortMemory.MatchString(text):
		return fmt.Errorf("the model needs more than the %d MiB of memory that the machine has free (%s)", b.Memory>>20, text)
	case b.Memory > 0 && !killed && shortMemory.MatchString(text):
		return latency.Permanent(fmt.Errorf("the model needs more than %d MiB of memory to be prepared and run (%s); "+
			"use a smaller model or shorter requests, or state limits.memory", b.Memory>>20, cmp.Or(allocation.FindString(text), text)))
	case !clean:
		return fmt.Errorf("%w %s %s", errDied, what, text)
	}
	err = asNoSizes(errors.New(strings.TrimPrefix(text, filepath.Base(process.Self())+": ")))
	if errors.Is(err, latency.ErrNoSizes) || strings.Contains(text, onnxruntime.TooLong) || unchanging.MatchString(text) {
		return latency.Permanent(err)
	}
	return err
}

// asNoSizes makes a child's error wrap [latency.ErrNoSizes] if its text has that error's.
func asNoSizes(err error) error {
	if _, why, ok := strings.Cut(err.Error(), latency.ErrNoSizes.Error()+":"); ok {
		return fmt.Errorf("%w: %s", latency.ErrNoSizes, strings.TrimSpace(why))
	}
	return err
}

// StartIdle starts work that nobody waits for. Tests, which do wait, replace it: beside another
// package's tests that use the cores it would hardly run.
var StartIdle = process.StartIdle

// runChild runs a command to its end.
func (m *Models) runChild(c *exec.Cmd, weight Weight) error {
	start := process.Start
	if weight == Background {
		start = StartIdle
	}
	p, err := start(c, syscall.SIGKILL)
	if err != nil {
		return err
	}
	if m.Place != nil {
		_ = m.Place(c.Process.Pid, bool(weight)) // An error means that it has ended, or has more weight than it should.
	}
	return p.Wait()
}

// output keeps what a child prints, and fails after max bytes: the child gets SIGPIPE then.
type output struct {
	text []byte
	max  int
	over bool
}

// Write implements io.Writer.
func (o *output) Write(b []byte) (int, error) {
	if len(o.text)+len(b) > o.max {
		o.over = true
		return 0, errors.New("too much output")
	}
	o.text = append(o.text, b...)
	return len(b), nil
}

// ends keeps the beginning and the end of what is written.
type ends struct{ begin, end []byte }

// Write implements io.Writer.
func (e *ends) Write(b []byte) (int, error) {
	n := min(len(b), keptComplaint-len(e.begin))
	e.begin, e.end = append(e.begin, b[:n]...), append(e.end, b[n:]...)
	if len(e.end) > 2*keptComplaint {
		e.end = append(e.end[:0], e.end[len(e.end)-keptComplaint:]...)
	}
	return len(b), nil
}

// String returns both.
func (e *ends) String() string { return string(e.begin) + string(e.end) }

// Weights is the size in bytes of a model's file and of its files of external weights; 0 if the
// file cannot be read.
func Weights(file string) (bytes int64) {
	info, err := os.Stat(file)
	if err != nil {
		return 0
	}
	bytes = info.Size()
	names, err := model.ExternalFiles(file)
	if err != nil {
		return bytes
	}
	for _, name := range names {
		if info, err := os.Stat(filepath.Join(filepath.Dir(file), name)); err == nil {
			bytes += info.Size()
		}
	}
	return bytes
}
