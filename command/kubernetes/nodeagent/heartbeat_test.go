package nodeagent

import (
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/gpu"
)

// The agent writes its annotation when it differs, and otherwise once per heartbeat.
func TestHeartbeat(t *testing.T) {
	now := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	i := gpu.Inventory{Devices: []gpu.Device{{UUID: "a", Memory: 8}}, Sharing: gpu.None, Reason: "r"}
	first := due("", i, now)
	read, err := gpu.Parse(first)
	if err != nil || !read.Alive.Equal(now) || read.Dead(now) {
		t.Fatalf("%s, %v", first, err)
	}
	if text := due(first, i, now.Add(gpu.Heartbeat-time.Second)); text != "" {
		t.Errorf("written again: %s", text)
	}
	if text := due(first, i, now.Add(gpu.Heartbeat)); text == "" || text == first {
		t.Errorf("no heartbeat: %q", text)
	}
	if text := due(first, i, now.Add(-time.Hour)); text == "" { // The clock was set back.
		t.Error("a heartbeat of the future stays")
	}
	i.Reason = "another"
	if text := due(first, i, now); text == "" || text == first {
		t.Errorf("a change is not written: %q", text)
	}
	if text := due("nonsense", i, now); text == "" {
		t.Error("nonsense stays")
	}
	if without := i; due(without.String(), i, now) == "" {
		t.Error("an annotation without heartbeat stays")
	}
	if read.Dead(now.Add(3*gpu.Heartbeat)) || !read.Dead(now.Add(5*gpu.Heartbeat)) || (gpu.Inventory{}).Dead(now) {
		t.Error("it dies at the wrong time")
	}
}
