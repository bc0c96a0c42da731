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

// Trace is one file.
type Trace struct {
	// Name is the file's, without its folder and its extension.
	Name string
	// Step is the time that a line stands for; 0 where the file does not say.
	Step    time.Duration
	Columns []Column
}

// Column is one function's load.
type Column struct {
	Name string
	// Counts are the requests of each step, not always whole where somebody has
	// averaged them.
	Counts []float64
	// TraceTimes are when the requests came, from the beginning of the first step,
	// where the file has recorded that; else nil.
	Times []time.Duration
}

// Max is the highest count.
func (c Column) Max() float64 {
	most := 0.0
	for _, n := range c.Counts {
		most = max(most, n)
	}
	return most
}

// Total is the number of requests.
func (c Column) Total() float64 {
	total := 0.0
	for _, n := range c.Counts {
		total += n
	}
	return total
}

// Column finds a column; an error lists those that there are.
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

// Length is how long the trace is.
func (t *Trace) Length() time.Duration {
	if len(t.Columns) == 0 {
		return 0
	}
	return time.Duration(len(t.Columns[0].Counts)) * t.Step
}

//go:embed data
var data embed.FS

var builtin = map[string]string{"azure-7d": "data/azure-7d.csv.gz", "osvt-ramp": "data/osvt-ramp.csv", "azure-llm": "data/azure-llm.csv.gz"}

// BuiltinTraces lists the names of the traces that the program has.
func BuiltinTraces() []string { return []string{"azure-7d", "osvt-ramp", "azure-llm"} }

// maxSize bounds, in bytes, what is read of a file, unpacked.
const maxSize = 256 << 20

// OpenTrace reads a built-in trace by its name, or a file, which may be packed by
// gzip.
func OpenTrace(nameOrFile string) (*Trace, error) {
	if name, ok := builtin[nameOrFile]; ok {
		text, err := data.ReadFile(name)
		if err != nil {
			return nil, err
		}
		return ReadTrace(nameOrFile, bytes.NewReader(text))
	}
	f, err := os.Open(nameOrFile)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("there is no trace %q: it is a file, or one of %s", nameOrFile, strings.Join(BuiltinTraces(), ", "))
	} else if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	defer f.Close()
	return ReadTrace(filepath.ToSlash(nameOrFile), f)
}

// ReadTrace reads a trace, packed by gzip or not, whose file's name is name. Lines
// that begin with # are comments. The first other line names the columns: first
// minute, second, hour or step, then one for each function. The lines below are
// numbered by their first cell without a gap and have counts, from 0. A file
// whose first column is a timestamp has a line for each request instead, in
// order of time; its other columns are not read. One whose first column is a gap has
// the seconds from a request to the next instead. An error names the line.
func ReadTrace(name string, r io.Reader) (*Trace, error) {
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
		err = fmt.Errorf("more than %d MiB are too much", maxSize>>20)
	}
	return text, err
}
