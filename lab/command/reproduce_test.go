package command

import (
	"bytes"
	"strings"
	"testing"
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
	} {
		if text, err := reproduced(t, c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q\n%s", c.args, err, c.want, text)
		}
	}
}
