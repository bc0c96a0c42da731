package annotation

import "testing"

func TestParseCPU(t *testing.T) {
	for s, want := range map[string]int{
		"1": 1000, "500m": 500, "0.5": 500, ".5": 500, "1.5": 1500, "0.29": 290, "0.1": 100, "100m": 100,
		"0.0001": 1, "1.5m": 2, "64": 64000, "1000000": 1000000000,
	} {
		if got, err := ParseCPU(s); err != nil || got != want {
			t.Errorf("ParseCPU(%q) = %d, %v; want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "m", "0", "0m", "-1", "+1", "1e3", "NaN", "Inf", "0x1", "1 ", "1k", "1mm", "1_0", "1000001", "."} {
		if got, err := ParseCPU(s); err == nil {
			t.Errorf("ParseCPU(%q) = %d, want an error", s, got)
		}
	}
}

func TestParseMemory(t *testing.T) {
	for s, want := range map[string]int64{
		"128Mi": 128 << 20, "1.5Gi": 3 << 29, "64M": 64e6, "1Ki": 1024, "2Ti": 2 << 40, "1k": 1000,
		"1G": 1e9, "1T": 1e12, "134217728": 134217728, "0.5": 1, "0.1Ki": 103,
	} {
		if got, err := ParseMemory(s); err != nil || got != want {
			t.Errorf("ParseMemory(%q) = %d, %v; want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "Mi", "0", "0Mi", "-1Mi", "128m", "128MB", "128mi", "1e6", "1 Gi", "9008T", "99999999999999999999", "∞"} {
		if got, err := ParseMemory(s); err == nil {
			t.Errorf("ParseMemory(%q) = %d, want an error", s, got)
		}
	}
}

func TestIsName(t *testing.T) {
	for s, want := range map[string]bool{"a": true, "resnet-50": true, "0": true, "": false, "-a": false, "a-": false, "A": false, "a_b": false, "é": false} {
		if IsName(s) != want {
			t.Errorf("IsName(%q) = %v", s, !want)
		}
	}
}
