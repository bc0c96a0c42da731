package cuda

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The places of ONNX Runtime's functions are those of its header.
func TestTable(t *testing.T) {
	said, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-json", "github.com/yalue/onnxruntime_go").Output()
	if err != nil {
		t.Fatal(err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal(said, &module); err != nil {
		t.Fatal(err)
	}
	header, err := os.ReadFile(filepath.Join(module.Dir, "onnxruntime_c_api.h"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(header), "struct OrtApi {")
	table, _, closed := strings.Cut(table, "\n};\n")
	if !ok || !closed {
		t.Fatal("the header has no OrtApi")
	}
	table = regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*`).ReplaceAllString(table, "")
	var names []string
	member := regexp.MustCompile(`ORT_API2_STATUS\(\s*(\w+)|ORT_CLASS_RELEASE2?\(\s*(\w+)|ORT_API_T\([^,]*,\s*(\w+)|\(\s*ORT_API_CALL\s*\*\s*(?:const\s+)?(\w+)\s*\)`)
	for _, m := range member.FindAllStringSubmatch(table, -1) {
		name := m[1] + m[3] + m[4]
		if m[2] != "" {
			name = "Release" + m[2]
		}
		names = append(names, name)
	}
	ours, err := os.ReadFile("session.h")
	if err != nil {
		t.Fatal(err)
	}
	places := regexp.MustCompile(`ort_(\w+) = (\d+)`).FindAllStringSubmatch(string(ours), -1)
	if len(places) < 40 {
		t.Fatalf("%d places", len(places))
	}
	for _, p := range places {
		at, err := strconv.Atoi(p[2])
		if err != nil {
			t.Fatal(err)
		}
		if want := slices.Index(names, p[1]); p[1] != "version" && at != want {
			t.Errorf("%s is at %d, not %d", p[1], want, at)
		}
	}
}
