package logs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func store(t *testing.T) *Store {
	t.Helper()
	return &Store{Dir: t.TempDir(), MaxBytes: 10, Keep: 2}
}

func TestAWriterNeverNoticesThatItsLogIsRotated(t *testing.T) {
	s := store(t)
	file, err := s.Open("f.ns", "a")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, line := range []string{"first line is long", "second line is long", "third line is long", "short"} {
		if _, err := file.WriteString(line + "\n"); err != nil {
			t.Fatal(err)
		}
		if err := s.Rotate("f.ns", "a"); err != nil {
			t.Fatal(err)
		}
	}
	path := s.Path("f.ns", "a")
	for name, want := range map[string]string{
		path:        "short\n",
		path + ".1": "third line is long\n",
		path + ".2": "second line is long\n",
	} {
		if got, err := os.ReadFile(name); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v, want %q", filepath.Base(name), got, err, want)
		}
	}
	if _, err := os.Stat(path + ".3"); err == nil {
		t.Error("more rotated files were kept than asked for")
	}
	if err := s.Rotate("f.ns", "unknown"); err != nil {
		t.Errorf("a log that does not exist: %v", err)
	}
}

func TestLogsOfGoneInstancesAreKeptUpToABound(t *testing.T) {
	s := store(t)
	now := time.Now()
	for i, id := range []string{"oldest", "older", "young", "youngest", "live"} {
		file, err := s.Open("f.ns", id)
		if err != nil {
			t.Fatal(err)
		}
		file.Close()
		if err := os.Chtimes(s.Path("f.ns", id), time.Time{}, now.Add(time.Duration(i-10)*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	live := func(id string) bool { return id == "live" }
	if err := s.Prune("f.ns", live, now.Add(-100*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if got := names(t, s, "f.ns"); !slices.Equal(got, []string{"live.log", "young.log", "youngest.log"}) {
		t.Errorf("kept %v", got)
	}
	if err := s.Prune("f.ns", func(string) bool { return false }, now); err != nil {
		t.Fatal(err)
	}
	if functions, err := s.Functions(); err != nil || len(functions) != 0 {
		t.Errorf("functions that still have logs: %v, %v", functions, err)
	}
	if err := s.Prune("unknown", live, now); err != nil {
		t.Errorf("a function without logs: %v", err)
	}
}

// Several instances of a function may end, and prune, at the same time while another one
// starts.
func TestPruningAtTheSameTimeIsNoError(t *testing.T) {
	s := store(t)
	for round := range 20 {
		for i := range 50 {
			file, err := s.Open("f.ns", fmt.Sprintf("r%d-i%d", round, i))
			if err != nil {
				t.Fatal(err)
			}
			file.Close()
		}
		errs := make(chan error)
		go func() {
			file, err := s.Open("f.ns", "next")
			file.Close()
			errs <- err
		}()
		for range 4 {
			go func() { errs <- s.Prune("f.ns", func(id string) bool { return id == "next" }, time.Now()) }()
		}
		for range 5 {
			if err := <-errs; err != nil {
				t.Fatal(err)
			}
		}
		if err := os.RemoveAll(filepath.Join(s.Dir, "f.ns")); err != nil {
			t.Fatal(err)
		}
	}
}

func names(t *testing.T, s *Store, function string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(s.Dir, function))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, entry := range entries {
		found = append(found, entry.Name())
	}
	return found
}

func TestCause(t *testing.T) {
	s := store(t)
	for text, want := range map[string]string{
		"":                            "",
		"\n\n":                        "",
		"only":                        "only",
		"one\ntwo\n\n":                "two",
		"one\r\ntwo\r\n":              "two",
		strings.Repeat("long ", 2000): strings.Repeat("long ", 60) + " … " + strings.Repeat(" long", 60),
		"2026-11-28T15:04:05.000000001Z one\n2026-11-28T15:04:06Z two\n":                       "two",
		"SIGSEGV: segmentation violation\n" + strings.Repeat("stack\n", 9000) + "gs     0x0\n": "SIGSEGV (segmentation violation)",
		strings.Repeat("x\n", 5000) + "end":                                                    "end",
	} {
		file, err := s.Open("f", "a")
		if err != nil {
			t.Fatal(err)
		}
		file.WriteString(text)
		file.Close()
		if got := s.Cause("f", "a", 2); got != want {
			t.Errorf("%.20q…: %q, want %q", text, got, want)
		}
		os.Remove(s.Path("f", "a"))
	}
	if got := s.Cause("f", "none", 2); got != "" {
		t.Errorf("a log that does not exist: %q", got)
	}
}

// A program that takes the file's lock for each write loses no line by rotation, however fast it
// prints.
func TestRotationLosesNoLine(t *testing.T) {
	const rotations = 20
	s := &Store{Dir: t.TempDir(), MaxBytes: 1 << 10, Keep: 2 * rotations}
	file, err := s.Open("f.ns", "a")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	stop, printed := make(chan struct{}), make(chan int)
	go func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				printed <- n
				return
			default:
			}
			err := unix.Flock(int(file.Fd()), unix.LOCK_SH)
			if err == nil {
				_, err = fmt.Fprintln(file, n)
			}
			if err = errors.Join(err, unix.Flock(int(file.Fd()), unix.LOCK_UN)); err != nil {
				t.Error(err)
			}
		}
	}()
	for n := 0; n < rotations; {
		if s.Due("f.ns", "a") {
			n++
			rotate(t, s, "a")
		}
	}
	close(stop)
	n := <-printed
	lines := texts(t, s, Query{})
	if len(lines) != n {
		t.Fatalf("%d of %d lines are left", len(lines), n)
	}
	for i, line := range lines {
		if !strings.HasSuffix(line, fmt.Sprint(" ", i)) {
			t.Fatalf("line %d is %q", i, line)
		}
	}
}
