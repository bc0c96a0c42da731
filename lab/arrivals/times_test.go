package arrivals

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func file(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "load.csv")
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

// timesOf opens a file and returns the times of its requests.
func timesOf(nameOrFile string) ([]time.Duration, error) {
	t, err := OpenTrace(nameOrFile)
	if err != nil {
		return nil, err
	}
	return t.Columns[0].Times, nil
}

// Azure's form, seconds, and gaps give the same times.
func TestTimes(t *testing.T) {
	want := []time.Duration{0, 500 * time.Millisecond, 500 * time.Millisecond, 201 * time.Second}
	for _, text := range []string{
		"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.5000000,374,44\n2023-11-16 18:15:47.0000000,1,1\n2023-11-16 18:15:47,1,1\n2023-11-16 18:19:07.5,1,1\n",
		"timestamp\n7\n7.5\n7.5\n208\n",
		"# comment\ngap\n0.5\n0\n200.5\n",
		"inter-arrival,size\n0.5,1\n0,1\n200.5,1\n",
	} {
		got, err := timesOf(file(t, text))
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

func TestTimesRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"gap\n1\n-1\n":              `line 3: "-1" is not a gap: it must be in seconds`,
		"gap\nNaN\n":                `line 2: "NaN" is not a gap`,
		"0.5\n0.7\n":                "the first line must name the columns",
		"timestamp\n5\n4\n":         "sort the file by time",
		"arrival time\n5\n":         `the first column is "arrival time": it must be minute`,
		"gap\n31000000\n31000000\n": "after the first",
	} {
		if _, err := timesOf(file(t, text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}

// The recording of Azure's LLM service has 19,366 requests in an hour.
func TestAzureLLM(t *testing.T) {
	times, err := timesOf("azure-llm")
	if err != nil {
		t.Fatal(err)
	}
	last := times[len(times)-1]
	if len(times) != 19_366 || last.Round(time.Second) != 3502*time.Second {
		t.Errorf("%d requests in %v", len(times), last)
	}
}
