package client

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"k8s.io/klog/v2"
)

func TestRoute(t *testing.T) {
	var out bytes.Buffer
	RouteLogs(zerolog.New(&out).Level(zerolog.InfoLevel))
	defer klog.ClearLogger()
	klog.InfoS("nothing of note", "key", "value")
	klog.ErrorS(errors.New("refused"), "a watch ended", "of", "pods")
	klog.Errorf("old %s", "form")
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], `"level":"warn"`) || !strings.Contains(lines[0], `"of":"pods"`) ||
		!strings.Contains(lines[0], "refused") || !strings.Contains(lines[1], "old form") {
		t.Errorf("logged %q", lines)
	}
}
