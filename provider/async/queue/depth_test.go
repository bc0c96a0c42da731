package queue

import (
	"context"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

// The depth of a key is the number of its stored messages, without those that are put off.
func TestDepth(t *testing.T) {
	b := open(t, nil)
	for range 3 {
		if err := publish(t, b, "x"); err != nil {
			t.Fatal(err)
		}
	}
	p := StartPool(PoolOptions{
		Connection: b.Settling(), JetStream: b.JetStream(), Stream: WorkStream, Subject: WorkSubjects, MaxMessage: 1 << 20, Logger: zerolog.Nop(),
		Owns: func(string) bool { return false }, Handle: func(context.Context, *Message) Verdict { panic("nothing is taken") },
	})
	defer p.Close(t.Context())
	began := time.Now()
	if err := p.scanSubjects(); err != nil {
		t.Fatal(err)
	}
	const key = "openfaas-fn.echo"
	if n, at := p.Depth(key); n != 3 || at.Before(began) {
		t.Errorf("%d messages at %v", n, at)
	}
	p.mu.Lock()
	w := p.workers[key]
	p.mu.Unlock()
	w.mu.Lock()
	w.back.add(time.Now().Add(time.Hour))
	w.mu.Unlock()
	if n, _ := p.Depth(key); n != 2 {
		t.Errorf("%d messages, and one of three is put off", n)
	}
	if n, at := p.Depth("openfaas-fn.other"); n != 0 || at.IsZero() {
		t.Errorf("%d messages of another key at %v", n, at)
	}
}
