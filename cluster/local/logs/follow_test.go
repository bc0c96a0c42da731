package logs

import (
	"context"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// followed is a reader that follows a function, within a bubble.
type followed struct {
	lines  []string
	paused chan struct{}
	stop   func()
}

func follow(t *testing.T, s *Store, q Query) *followed {
	t.Helper()
	q.Function, q.Follow = "f.ns", true
	r, err := s.Reader(q)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	f := &followed{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := r.Run(ctx, func(l Line) error {
			f.lines = append(f.lines, l.Instance+" "+l.Text)
			if f.paused != nil {
				<-f.paused
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}()
	f.stop = func() {
		cancel()
		<-done
	}
	f.wait()
	return f
}

// wait lets the reader look once more.
func (f *followed) wait() {
	time.Sleep(pollInterval)
	synctest.Wait()
}

func (f *followed) got() []string {
	lines := f.lines
	f.lines = nil
	return lines
}

func TestFollow(t *testing.T) {
	s := &Store{Dir: t.TempDir(), MaxBytes: 1, Keep: 2}
	print(t, s, "a", stamped(1, "one"), stamped(2, "two"), stamped(3, "th"))
	synctest.Test(t, func(t *testing.T) {
		f := follow(t, s, Query{Tail: 2})
		defer f.stop()
		want(t, f.got(), "a two", "a th")
		print(t, s, "b", stamped(5, "a new instance"))
		print(t, s, "a", stamped(4, "four"))
		f.wait()
		want(t, f.got(), "a four", "b a new instance")
		// A line comes in two parts, a rotation between them.
		print(t, s, "a", stamped(6, "six")[:22])
		f.wait()
		want(t, f.got())
		rotate(t, s, "a")
		print(t, s, "a", stamped(6, "six")[22:], stamped(7, "seven"))
		rotate(t, s, "a")
		print(t, s, "a", stamped(8, "eight"))
		f.wait()
		want(t, f.got(), "a six", "a seven", "a eight")
		// Somebody empties the file by hand.
		if err := os.Truncate(s.Path("f.ns", "a"), 0); err != nil {
			t.Fatal(err)
		}
		print(t, s, "a", stamped(9, "9"))
		f.wait()
		want(t, f.got(), "a 9")
		// A line without end is not waited for forever.
		print(t, s, "b", "really? [y/N] ")
		for range maxQuiet {
			f.wait()
		}
		want(t, f.got(), "b really? [y/N] ")
		// One that is gone, and then another.
		if err := s.Prune("f.ns", func(id string) bool { return id != "b" }, time.Now().Add(24*time.Hour*365*100)); err != nil {
			t.Fatal(err)
		}
		print(t, s, "c", "without a time\n")
		f.wait()
		want(t, f.got(), "c without a time")
	})
}

func TestFollowBeforeThereIsAnything(t *testing.T) {
	s := &Store{Dir: t.TempDir(), Keep: 2}
	synctest.Test(t, func(t *testing.T) {
		f := follow(t, s, Query{Instance: "b"})
		defer f.stop()
		print(t, s, "a", stamped(1, "not wanted"))
		print(t, s, "b", stamped(1, "wanted"))
		f.wait()
		want(t, f.got(), "b wanted")
	})
}

// A client that stops reading for a while misses no kept line and sees none twice, even if
// the rotated log has grown beyond its old position.
func TestFollowSlowly(t *testing.T) {
	s := &Store{Dir: t.TempDir(), MaxBytes: 1, Keep: 2}
	synctest.Test(t, func(t *testing.T) {
		f := follow(t, s, Query{})
		defer f.stop()
		f.paused = make(chan struct{})
		var all []string
		for i := range 3000 {
			print(t, s, "a", stamped(i, fmt.Sprint("line ", i)))
			all = append(all, fmt.Sprint("a line ", i))
			if i == 10 {
				f.wait()
			}
			if i == 500 || i == 1500 {
				rotate(t, s, "a")
			}
		}
		close(f.paused)
		f.wait()
		f.wait()
		want(t, f.got(), all...)
	})
}

// Rotation and reading go on at the same time while an instance prints.
func TestFollowUnderRotation(t *testing.T) {
	s := &Store{Dir: t.TempDir(), MaxBytes: 4 << 10, Keep: 3}
	const n = 20_000
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := s.Reader(Query{Function: "f.ns", Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	printed := make(chan struct{})
	seen := make(chan int, n+1)
	go func() {
		defer close(printed)
		file, err := s.Open("f.ns", "a")
		if err != nil {
			t.Error(err)
			return
		}
		defer file.Close()
		for i := range n {
			fmt.Fprintf(file, "%d\n", i)
			if i%2000 == 1999 {
				// One process prints and rotates, so that nothing falls between
				// copying and cutting off; the reader must keep up by itself.
				for behind := range seen {
					if behind > i-4000 {
						break
					}
				}
				rotate(t, s, "a")
			}
		}
	}()
	next := 0
	err = r.Run(ctx, func(l Line) error {
		if l.Text != fmt.Sprint(next) {
			return fmt.Errorf("%q instead of %d", l.Text, next)
		}
		seen <- next
		if next++; next == n {
			cancel()
		}
		return nil
	})
	if err != nil || next != n {
		t.Errorf("%d lines, %v", next, err)
	}
	<-printed
}
