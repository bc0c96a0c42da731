package logs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// stamped is a line as the watchdog writes it, seconds after noon.
func stamped(second int, text string) string {
	return noon.Add(time.Duration(second)*time.Second).Format(time.RFC3339Nano) + " " + text + "\n"
}

// zero is a line as zerolog writes it.
func zero(second int, text string) string {
	return fmt.Sprintf(`{"level":"info","time":%q,"message":%q}`+"\n", noon.Add(time.Duration(second)*time.Second).Format(time.RFC3339), text)
}

// print appends to an instance's log.
func print(t testing.TB, s *Store, id string, lines ...string) {
	t.Helper()
	file, err := s.Open("f.ns", id)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, line := range lines {
		if _, err := file.WriteString(line); err != nil {
			t.Fatal(err)
		}
	}
}

func rotate(t testing.TB, s *Store, id string) {
	t.Helper()
	if err := s.Rotate("f.ns", id); err != nil {
		t.Fatal(err)
	}
}

// texts reads what a query finds, as "instance:second text".
func texts(t testing.TB, s *Store, q Query) []string {
	t.Helper()
	q.Function = "f.ns"
	r, err := s.Reader(q)
	if err != nil {
		t.Fatal(err)
	}
	out := []string{}
	err = r.Run(t.Context(), func(l Line) error {
		out = append(out, show(l))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func show(l Line) string {
	return fmt.Sprintf("%s:%d %s", l.Instance, l.Time.Sub(noon)/time.Second, l.Text)
}

func want(t testing.TB, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func TestInstancesAreMergedByTime(t *testing.T) {
	s := &Store{Dir: t.TempDir(), MaxBytes: 1, Keep: 2}
	print(t, s, "a", "no time yet\n", stamped(1, "one"), "goroutine 1:\n", "\n", stamped(5, "five\r"))
	rotate(t, s, "a")
	print(t, s, "a", stamped(7, "seven"), stamped(6, "clock went back"), "unfinished")
	print(t, s, "b", zero(2, "two"), stamped(6, ""), stamped(9, "nine"))
	print(t, s, "gone", stamped(0, "zero"), stamped(4, "four"))
	zeroTwo := strings.TrimSuffix(zero(2, "two"), "\n")
	all := []string{"gone:0 zero", "a:1 no time yet", "a:1 one", "a:1 goroutine 1:", "a:1 ", "b:2 " + zeroTwo, "gone:4 four", "a:5 five",
		"b:6 ", "a:7 seven", "a:6 clock went back", "a:6 unfinished", "b:9 nine"}
	want(t, texts(t, s, Query{}), all...)
	want(t, texts(t, s, Query{Tail: -1}), all...)
	want(t, texts(t, s, Query{Tail: 1000}), all...)
	for n := 1; n <= len(all); n++ {
		want(t, texts(t, s, Query{Tail: n}), all[len(all)-n:]...)
	}
	want(t, texts(t, s, Query{Instance: "gone"}), "gone:0 zero", "gone:4 four")
	want(t, texts(t, s, Query{Instance: "nobody"}))
	want(t, texts(t, s, Query{Instance: ".."}))
	want(t, texts(t, s, Query{Since: noon.Add(7 * time.Second)}), "a:7 seven", "b:9 nine")
	want(t, texts(t, s, Query{Since: noon.Add(5 * time.Second), Tail: 2, Instance: "b"}), "b:6 ", "b:9 nine")
	want(t, texts(t, s, Query{Since: noon.Add(time.Hour)}))
}

func TestNoLogs(t *testing.T) {
	s := &Store{Dir: t.TempDir(), Keep: 2}
	want(t, texts(t, s, Query{}))
	for _, name := range []string{"", ".", "..", "../f.ns", "/etc", "f.ns/x", "a\x00"} {
		if _, err := s.Reader(Query{Function: name}); err == nil {
			t.Errorf("%q was taken for a function", name)
		}
	}
}

// Lines of a file without times have the time of the last write.
func TestTheFilesTime(t *testing.T) {
	s := &Store{Dir: t.TempDir(), Keep: 2}
	print(t, s, "a", "one\n", "two\n")
	if err := os.Chtimes(s.Path("f.ns", "a"), noon, noon.Add(3*time.Second)); err != nil {
		t.Fatal(err)
	}
	want(t, texts(t, s, Query{}), "a:3 one", "a:3 two")
}

// The last lines of a log are found across its rotated files, without reading all of them.
func TestTailOverRotations(t *testing.T) {
	s := &Store{Dir: t.TempDir(), MaxBytes: 1, Keep: 2}
	var all []string
	for i := range 1500 {
		text := fmt.Sprintf("line %d %s", i, strings.Repeat("x", 100))
		print(t, s, "a", stamped(i, text))
		all = append(all, fmt.Sprintf("a:%d %s", i, text))
		if i == 300 || i == 800 || i == 1300 {
			rotate(t, s, "a")
		}
	}
	kept := all[301:]
	for _, n := range []int{1, 98, 99, 100, 101, 198, 199, 200, 698, 699, 700, 1199} {
		want(t, texts(t, s, Query{Tail: n}), kept[len(kept)-n:]...)
	}
	want(t, texts(t, s, Query{}), kept...)
	r, err := s.Reader(Query{Function: "f.ns", Tail: 5})
	if err != nil {
		t.Fatal(err)
	}
	starts, err := r.starts()
	if err != nil || starts["a"].offset == 0 || starts["a"].rotation != 3 {
		t.Errorf("five lines are looked for from %v on, %v", starts["a"], err)
	}
}

// A log may be rotated any number of times while it is read.
func TestRotationWhileReading(t *testing.T) {
	s := &Store{Dir: t.TempDir(), MaxBytes: 1, Keep: 3}
	const n = 4000
	for i := range n {
		print(t, s, "a", stamped(i, fmt.Sprint("line ", i)))
	}
	r, err := s.Reader(Query{Function: "f.ns"})
	if err != nil {
		t.Fatal(err)
	}
	i := 0
	err = r.Run(t.Context(), func(l Line) error {
		if l.Text != fmt.Sprint("line ", i) {
			return fmt.Errorf("%q after %d lines", l.Text, i)
		}
		if i++; i == 500 || i == 1500 || i == 2500 {
			print(t, s, "a", stamped(n+i, fmt.Sprint("line ", n+i/1000)))
			rotate(t, s, "a")
		}
		return nil
	})
	if err != nil || i != n+3 {
		t.Errorf("%d lines, %v; want %d", i, err, n+3)
	}
}

func TestLongLines(t *testing.T) {
	s := &Store{Dir: t.TempDir(), MaxBytes: 1, Keep: 1}
	long := strings.Repeat("ü", maxLine) // Twice as many bytes.
	print(t, s, "a", stamped(1, long), stamped(2, "after"), strings.Repeat("x", maxLine)+"\n", "end\n")
	r, err := s.Reader(Query{Function: "f.ns"})
	if err != nil {
		t.Fatal(err)
	}
	joined, n := "", 0
	err = r.Run(t.Context(), func(l Line) error {
		if len(l.Text) > maxLine || strings.ContainsRune(l.Text, '\uFFFD') {
			t.Errorf("a line of %d bytes", len(l.Text))
		}
		joined += l.Text
		n++
		return nil
	})
	if err != nil || joined != long+"after"+strings.Repeat("x", maxLine)+"end" || n != 3+3 {
		t.Errorf("%d lines of %d bytes, %v", n, len(joined), err)
	}
}

func TestRunEndsWithItsReader(t *testing.T) {
	s := &Store{Dir: t.TempDir(), Keep: 1}
	print(t, s, "a", stamped(1, "one"), stamped(2, "two"))
	r, err := s.Reader(Query{Function: "f.ns", Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("the client left")
	if err := r.Run(t.Context(), func(Line) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("Run = %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Run(ctx, func(Line) error { return ctx.Err() }); err != nil {
		t.Errorf("Run after the end of its context = %v", err)
	}
}
