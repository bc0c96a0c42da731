package arrivals

import (
	"bytes"
	"compress/gzip"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// Trace is the content of one file of recorded load.
type Trace struct {
	// Name is the file's name without folder and extension.
	Name string
	// Step is the time that a line stands for, 0 if the file does not say.
	Step    time.Duration
	Columns []Column
}

// Column is one function's load.
type Column struct {
	Name string
	// Counts are the requests of each step. Averaged counts need not be whole.
	Counts []float64
	// Times are the times of the requests since the beginning of the first step, nil
	// if the file has only counts.
	Times []time.Duration
}

// Max returns the highest count.
func (c Column) Max() float64 {
	highest := 0.0
	for _, n := range c.Counts {
		highest = max(highest, n)
	}
	return highest
}

// Total returns the number of requests.
func (c Column) Total() float64 {
	total := 0.0
	for _, n := range c.Counts {
		total += n
	}
	return total
}

// Column returns the column of a name. If there is none, the error lists the columns.
func (t *Trace) Column(name string) (Column, error) {
	names := make([]string, 0, len(t.Columns))
	for _, c := range t.Columns {
		if c.Name == name {
			return c, nil
		}
		names = append(names, c.Name)
	}
	return Column{}, fmt.Errorf("trace %s has no column %q: it has %s", t.Name, name, strings.Join(names, ", "))
}

// Length returns the time that the trace covers.
func (t *Trace) Length() time.Duration {
	if len(t.Columns) == 0 {
		return 0
	}
	return time.Duration(len(t.Columns[0].Counts)) * t.Step
}

//go:embed data
var data embed.FS

var builtin = map[string]string{"azure-7d": "data/azure-7d.csv.gz", "osvt-ramp": "data/osvt-ramp.csv", "azure-llm": "data/azure-llm.csv.gz"}

// BuiltinTraces lists the names of the built-in traces.
func BuiltinTraces() []string { return []string{"azure-7d", "osvt-ramp", "azure-llm"} }

// maxSize bounds the size of a file in bytes, packed and unpacked.
const maxSize = 256 << 20

// OpenTrace reads a built-in trace by its name, or a file, plain or packed by gzip.
func OpenTrace(nameOrFile string) (*Trace, error) {
	if name, ok := builtin[nameOrFile]; ok {
		text, err := data.ReadFile(name)
		if err != nil {
			return nil, err
		}
		return readTrace(nameOrFile, bytes.NewReader(text))
	}
	f, err := os.Open(nameOrFile)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("there is no trace %q: name a file, or one of %s", nameOrFile, strings.Join(BuiltinTraces(), ", "))
	} else if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	defer f.Close()
	return readTrace(filepath.ToSlash(nameOrFile), f)
}

// readTrace reads the trace of a file called name, plain or packed by gzip. Lines that
// begin with # are comments. The first other line names the columns. The first column's
// name decides the form of the lines below; an error names the line.
//
//   - minute, second, hour or step: the other columns have counts, one for each function.
//     The first cell numbers the lines without a gap.
//   - timestamp, time or arrived: each line is a request, in order of time. Other columns
//     are ignored.
//   - gap, gaps, interarrival or inter-arrival: each line is the seconds from a request to
//     the next. Other columns are ignored.
func readTrace(name string, r io.Reader) (*Trace, error) {
	text, err := unpacked(r)
	if err != nil {
		return nil, fmt.Errorf("trace %s: %w", name, err)
	}
	base := strings.TrimSuffix(path.Base(name), ".gz")
	t := &Trace{Name: strings.TrimSuffix(base, path.Ext(base))}
	if err := t.parse(string(text)); err != nil {
		return nil, fmt.Errorf("trace %s: %w", name, err)
	}
	return t, nil
}

func unpacked(r io.Reader) ([]byte, error) {
	text, err := bounded(r)
	if err != nil || !bytes.HasPrefix(text, []byte{0x1f, 0x8b}) {
		return text, err
	}
	z, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	return bounded(z)
}

func bounded(r io.Reader) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxSize+1))
	if err == nil && len(text) > maxSize {
		err = fmt.Errorf("the file has more than %d MiB, the maximum", maxSize>>20)
	}
	return text, err
}
