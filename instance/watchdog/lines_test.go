package watchdog

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// texts checks that every line begins with a time and returns what follows.
func texts(t *testing.T, log string) []string {
	t.Helper()
	var found []string
	for line := range strings.Lines(log) {
		stamp, text, ok := strings.Cut(line, " ")
		if _, err := time.Parse(time.RFC3339Nano, stamp); err != nil || !ok || !strings.HasSuffix(text, "\n") {
			t.Errorf("line %q: %v", line, err)
		}
		found = append(found, strings.TrimSuffix(text, "\n"))
	}
	return found
}

func TestLinesAreCopied(t *testing.T) {
	long := strings.Repeat("x", longestLine)
	for input, want := range map[string][]string{
		"":                      nil,
		"one\n":                 {"> one"},
		"one\r\ntwo":            {"> one", "> two"},
		"\n\n":                  {"> ", "> "},
		long + "yz\nnext\n":     {"> " + long, "> yz", "> next"},
		long + long + "y":       {"> " + long, "> " + long, "> y"},
		long[:len(long)-1]:      {"> " + long[1:]},
		"{\"a\": \"b c\"}\nx\n": {"> {\"a\": \"b c\"}", "> x"},
	} {
		var out bytes.Buffer
		NewLineLog(&out).Copy(strings.NewReader(input), "> ")
		if got := texts(t, out.String()); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%.20q: %d lines, want %d", input, len(got), len(want))
		}
	}
}

func TestLinesOfManyDoNotMix(t *testing.T) {
	var out bytes.Buffer
	log := NewLineLog(&out)
	var work sync.WaitGroup
	for i := range 8 {
		work.Go(func() {
			for range 100 {
				log.Printf("%s", strings.Repeat(fmt.Sprint(i), 50))
			}
		})
	}
	work.Wait()
	log.Logger().Print("from the library")
	got := texts(t, out.String())
	if len(got) != 801 || got[800] != "from the library" {
		t.Errorf("%d lines", len(got))
	}
	for _, line := range got[:800] {
		if line != strings.Repeat(line[:1], 50) {
			t.Errorf("line %q", line)
		}
	}
}
