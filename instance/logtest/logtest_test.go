package logtest_test

import (
	"fmt"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/faas-infer/faas-infer/instance/logtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Log keeps concurrent writes, and Await works meanwhile.
func TestManyWrite(t *testing.T) {
	const writers, lines = 8, 100
	var l logtest.Log
	for i := range writers {
		go func() {
			for range lines {
				fmt.Fprintf(&l, "from %d\n", i)
			}
		}()
	}
	for i := range writers {
		l.Await(t, fmt.Sprintf("from %d\n", i), lines)
	}
	if text := l.String(); strings.Count(text, "\n") != writers*lines || len(text) != writers*lines*len("from 0\n") {
		t.Errorf("the log is torn:\n%s", text)
	}
}
