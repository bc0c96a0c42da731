package async_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/provider/async"
	"github.com/faas-infer/faas-infer/provider/async/queue"
)

// box returns empty dead letters on an embedded server.
func box(t *testing.T) *async.DeadLetters {
	t.Helper()
	b, err := queue.OpenBroker(t.Context(), queue.BrokerOptions{Dir: t.TempDir(), Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return async.NewDeadLetters(b.JetStream(), queue.DeadStream, queue.DeadSubjects)
}

// put stores a letter for each text, by that text's number as id.
func put(t *testing.T, b *async.DeadLetters, texts ...string) {
	t.Helper()
	for i, text := range texts {
		if err := b.Put(t.Context(), fmt.Sprint("id", i), "n.f", async.DeadLetter{Function: "f.n", Reason: "expired"}, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
}

func sequences(t *testing.T, b *async.DeadLetters, from uint64, limit int) (out []uint64) {
	t.Helper()
	letters, err := b.List(t.Context(), from, limit)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range letters {
		out = append(out, l.Sequence)
	}
	return out
}

func TestALetterComesBackAsItWas(t *testing.T) {
	b := box(t)
	want := async.DeadLetter{
		Function: "f.n", Reason: "failed", Detail: "status 500: a\tb\nü\x7fz", Attempts: 4, Status: 500,
		Queued: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), CallID: "c", Callback: "http://h/",
	}
	for range 2 { // One id is stored once.
		if err := b.Put(t.Context(), "id", "n.f", want, []byte("payload")); err != nil {
			t.Fatal(err)
		}
	}
	got, data, err := b.Get(t.Context(), 1)
	if err != nil || string(data) != "payload" || time.Since(got.Time) > time.Hour {
		t.Fatalf("%+v with %q, %v", got, data, err)
	}
	listed, err := b.List(t.Context(), 0, 10)
	if err != nil || len(listed) != 1 || listed[0].Size == 0 || !listed[0].Time.Equal(got.Time) {
		t.Fatalf("%+v, %v", listed, err)
	}
	// A header has one line.
	want.Detail, want.Sequence = "status 500: a b ü z", 1
	for _, l := range []async.DeadLetter{got, listed[0]} {
		if l.Time, l.Size = (time.Time{}), 0; !reflect.DeepEqual(l, want) {
			t.Errorf("%+v, want %+v", l, want)
		}
	}
}

// A letter is stored whatever its fields contain.
func FuzzDetails(f *testing.F) {
	for _, s := range []string{"", "\r\nFaas-Reason: other", "\xff\xfe", strings.Repeat("ü", 2000), "a: b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		b := box(t)
		if err := b.Put(t.Context(), "id", "n.f", async.DeadLetter{Function: "f.n", Reason: "failed", Detail: s, CallID: s, Callback: s}, nil); err != nil {
			t.Fatal(err)
		}
		l, _, err := b.Get(t.Context(), 1)
		if err != nil || l.Reason != "failed" || l.Function != "f.n" || strings.ContainsAny(l.Detail, "\r\n") || len(l.Detail) > 1010 {
			t.Errorf("%q: %+v, %v", s, l, err)
		}
	})
}

func TestListing(t *testing.T) {
	b := box(t)
	if got := sequences(t, b, 0, 10); len(got) != 0 {
		t.Errorf("an empty box has %v", got)
	}
	put(t, b, "a", "b", "c", "d")
	if err := b.Remove(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		from  uint64
		limit int
		want  []uint64
	}{{0, 10, []uint64{1, 3, 4}}, {1, 2, []uint64{1, 3}}, {2, 1, []uint64{3}}, {4, 10, []uint64{4}}, {5, 10, nil}, {0, 0, nil}} {
		if got := sequences(t, b, c.from, c.limit); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%d from %d on: %v, want %v", c.limit, c.from, got, c.want)
		}
	}
	if n, err := b.Count(t.Context()); n != 3 || err != nil {
		t.Errorf("%d letters, %v", n, err)
	}
	if err := b.Remove(t.Context(), 2); !errors.Is(err, async.ErrNoDeadLetter) {
		t.Errorf("removed twice: %v", err)
	}
	if _, _, err := b.Get(t.Context(), 99); !errors.Is(err, async.ErrNoDeadLetter) {
		t.Errorf("a letter that never was: %v", err)
	}
}

// A replayed letter is removed, and one that cannot be sent stays. A letter has the same
// id at every replay.
func TestReplay(t *testing.T) {
	b := box(t)
	put(t, b, "a", "bad", "c")
	ids := map[string]bool{}
	send := func(_ context.Context, id string, l async.DeadLetter, data []byte) error {
		ids[id] = true
		if string(data) == "bad" {
			return errors.New("the queue is full")
		}
		return nil
	}
	got, err := b.Replay(t.Context(), []uint64{1, 9}, send)
	if err != nil || got.Replayed != 1 || len(got.Failed) != 1 || got.Failed[0].Sequence != 9 {
		t.Errorf("%+v, %v", got, err)
	}
	for range 2 {
		if got, err = b.Replay(t.Context(), nil, send); err != nil || len(got.Failed) != 1 || got.Failed[0] != (async.ReplayFailure{Sequence: 2, Error: "the queue is full"}) {
			t.Errorf("%+v, %v", got, err)
		}
	}
	if left := sequences(t, b, 0, 10); !reflect.DeepEqual(left, []uint64{2}) || len(ids) != 3 {
		t.Errorf("%v are left, sent as %v", left, ids)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Replay(ctx, nil, send); err == nil {
		t.Error("it goes on after its end")
	}
}
