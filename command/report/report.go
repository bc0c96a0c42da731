// Package report prints the results of measuring commands: one table for people, or one
// JSON object for programs, and a progress bar while they work. It measures nothing
// itself. Begin reading at [Report].
package report

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// Result is one figure. Names are lower-case words joined by "." and "_". They do not
// change from release to release.
type Result struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	Note  string  `json:"note,omitempty"`
}

// MarshalJSON writes null for a value that is no finite number, because JSON has none. The note then says which
// value it is.
func (x Result) MarshalJSON() ([]byte, error) {
	type plain Result
	if !math.IsInf(x.Value, 0) && !math.IsNaN(x.Value) {
		return json.Marshal(plain(x))
	}
	written := struct {
		plain
		Value *float64 `json:"value"`
	}{plain: plain(x)}
	written.Note = strings.TrimSuffix(number(x.Value)+"; "+x.Note, "; ")
	return json.Marshal(written)
}

// Report holds all results of one run of a measuring command.
type Report struct {
	Command string   `json:"command"`
	Machine string   `json:"machine"`
	Commit  string   `json:"commit"`
	Date    string   `json:"date"`
	Results []Result `json:"results"`
}

// New starts a report of command, run now on this machine by this build.
func New(command string, now time.Time) *Report {
	return &Report{Command: command, Machine: Machine(), Commit: Version(), Date: now.UTC().Format(time.RFC3339), Results: []Result{}}
}

// Add appends a figure.
func (r *Report) Add(name string, value float64, unit, note string) {
	r.Results = append(r.Results, Result{Name: name, Value: value, Unit: unit, Note: note})
}

// JSON writes the report as one object.
func (r *Report) JSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// Table writes the report for people.
func (r *Report) Table(w io.Writer) error {
	fmt.Fprintf(w, "%s\n%s, commit %s, %s\n", r.Command, r.Machine, r.Commit, r.Date)
	t := &Table{Columns: []Column{{}, {}, {}, {Long: true}}}
	for _, x := range r.Results {
		t.Add(x.Name, number(x.Value), x.Unit, x.Note)
	}
	return t.Write(w, false)
}

// Print writes the report as JSON or as a table.
func (r *Report) Print(w io.Writer, asJSON bool) error {
	if asJSON {
		return r.JSON(w)
	}
	return r.Table(w)
}

// number prints four significant digits, or all digits before the point.
func number(v float64) string {
	if math.Abs(v) >= 1000 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}

// Machine returns this machine's processor and the number of cores that this process
// could use when it started: "AMD EPYC × 2".
func Machine() string {
	name := runtime.GOARCH
	if f, err := os.Open("/proc/cpuinfo"); err == nil {
		defer f.Close()
		for s := bufio.NewScanner(f); s.Scan(); {
			if k, v, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(k) == "model name" {
				name = strings.TrimSpace(v)
				break
			}
		}
	}
	return fmt.Sprintf("%s × %d", name, runtime.NumCPU())
}

// Version returns the source's commit as the linker or the Go toolchain recorded it, "unknown" without.
func Version() string {
	if Commit != "" {
		return Commit
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return "unknown"
}

// Commit is set by the Makefile with -ldflags.
var Commit string

// Release is the version of a release, as v1.2.3. "make release" sets it with -ldflags; it is "" in other builds.
var Release string

// ReleaseOrCommit returns the version of a release, and the commit of another build.
func ReleaseOrCommit() string { return cmp.Or(Release, Version()) }
