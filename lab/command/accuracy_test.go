package command

import (
	"bytes"
	"io"
	"path/filepath"
	"strings"
	"testing"
)

// execute runs faas-infer-lab with args.
func execute(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	var out bytes.Buffer
	c := NewRootCommand()
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetArgs(args)
	c.SetOut(&out)
	c.SetErr(io.Discard)
	err = c.ExecuteContext(t.Context())
	return out.String(), err
}

func TestAccuracyRefuses(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"mnist", "--in-turn=false"}, "profile operators"},
		{[]string{"mnist", "--patience", "-1s"}, "--"},
	} {
		args := append([]string{"accuracy", "--database", filepath.Join(dir, "operators.jsonl"), "--prepared", dir}, c.args...)
		if _, err := execute(t, args...); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: %v", c.args, err)
		}
	}
}

func TestGPUBenchRefuses(t *testing.T) {
	for flag, value := range map[string]string{"--shares": "0", "--batch": "0", "--each": "0s"} {
		if _, err := execute(t, "bench", "gpu", flag, value); err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("bench gpu %s %s: %v", flag, value, err)
		}
	}
}
