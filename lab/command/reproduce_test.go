package command

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/lab/reproduction"
)

// reproduced runs the command and returns what it prints.
func reproduced(t *testing.T, args ...string) (string, error) {
	t.Helper()
	c := newReproduceCommand()
	var out bytes.Buffer
	c.SetOut(&out)
	c.SetErr(&out)
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetArgs(args)
	err := c.ExecuteContext(t.Context())
	return out.String(), err
}

func TestReproduceBadInput(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "0 seeds given, reproduce takes one: infless, batch"},
		{[]string{"infless", "batch"}, "2 seeds given"},
		{[]string{"mark"}, `unknown seed "mark"`},
		{[]string{"gillis", "--plot", "/proc"}, "--plot: the directory is not writable"},
		{[]string{"gillis", "--keep", "/proc"}, "--keep: the directory is not writable"},
	} {
		if text, err := reproduced(t, c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q\n%s", c.args, err, c.want, text)
		}
	}
}

// A run that keeps outcomes says of each part whether it was there.
func TestReproduceKeeps(t *testing.T) {
	p := &reproduction.Part{Name: "gillis", Commit: "abc123", Took: 90 * time.Second}
	for _, c := range []struct {
		had  bool
		want string
	}{{false, "gillis: took 90 s, kept in parts\n"}, {true, "gillis: taken from parts, of commit abc123\n"}} {
		var out bytes.Buffer
		if ended(&out, "parts")(p, c.had); out.String() != c.want {
			t.Errorf("%q, want %q", out.String(), c.want)
		}
	}
	if ended(nil, "") != nil {
		t.Error("a run that keeps nothing writes lines of its parts")
	}
}
