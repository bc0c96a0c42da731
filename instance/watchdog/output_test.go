package watchdog

import (
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"
)

// Output ends although the writer's end stays open, as if another process held it.
func TestOutputUpToTheEnd(t *testing.T) {
	for _, size := range []int{0, 1, 4096, 60_000} {
		p, err := openPipes(true)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Theirs[1].Write(make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		p.Stdout.End()
		// It is read late, and bit by bit.
		read, err := io.ReadAll(iotest.HalfReader(p.Stdout))
		if err != nil || len(read) != size {
			t.Errorf("%d bytes instead of %d, %v", len(read), size, err)
		}
		p.CloseTheirs()
		p.Close()
	}
}

func TestOutputOfAProcessThatClosesIt(t *testing.T) {
	p, err := openPipes(false)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err := p.Theirs[2].WriteString("text"); err != nil {
		t.Fatal(err)
	}
	p.CloseTheirs()
	if read, err := io.ReadAll(p.Stderr); err != nil || string(read) != "text" {
		t.Errorf("%q, %v", read, err)
	}
}

// Output discards what is written after the end.
func TestOutputAfterTheEnd(t *testing.T) {
	p, err := openPipes(true)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	defer p.CloseTheirs()
	write := func(text string) {
		if _, err := p.Theirs[1].WriteString(text); err != nil {
			t.Error(err)
		}
	}
	write("before")
	p.Stdout.End()
	first := make([]byte, 3)
	if _, err := io.ReadFull(p.Stdout, first); err != nil {
		t.Fatal(err)
	}
	write(strings.Repeat("after", os.Getpagesize()/5))
	if rest, err := io.ReadAll(p.Stdout); err != nil || string(first)+string(rest) != "before" {
		t.Errorf("%q and %.20q, %v", first, rest, err)
	}
}
