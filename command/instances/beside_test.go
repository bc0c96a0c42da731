package instances

import (
	"strings"
	"testing"
)

// Only a process beside the instance measures its model.
func TestTrialOfAnONNXModel(t *testing.T) {
	if err := (&Flags{trial: true}).measured(&Served{}); err == nil || !strings.Contains(err.Error(), "--trial") {
		t.Errorf("%v", err)
	}
}
