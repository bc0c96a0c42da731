package text

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// Several cores give the rows, and the first error, that one gives. A panic on any of them is one of the caller's.
func TestEach(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	texts := make([]string, 1000)
	for i := range texts {
		texts[i] = strings.Repeat("x", 100) + fmt.Sprintf("%03d", i)
	}
	bad := errors.New("bad")
	read := func(failing ...string) func(string) (Row, error) {
		return func(text string) (Row, error) {
			for _, end := range failing {
				if strings.HasSuffix(text, end) {
					return Row{}, fmt.Errorf("%w: %s", bad, end)
				}
			}
			return Row{IDs: []int32{int32(text[100]-'0')*100 + int32(text[101]-'0')*10 + int32(text[102]-'0')}}, nil
		}
	}
	rows, _, err := each(texts, read())
	if err != nil {
		t.Fatal(err)
	}
	for i, row := range rows {
		if len(row.IDs) != 1 || row.IDs[0] != int32(i) {
			t.Fatalf("row %d is %v", i, row)
		}
	}
	for range 50 {
		_, at, err := each(texts, read("702", "305", "307"))
		if at != 305 || !errors.Is(err, bad) || !strings.Contains(err.Error(), "305") {
			t.Fatalf("text %d: %v", at, err)
		}
	}
	func() {
		defer func() {
			if said := fmt.Sprint(recover()); !strings.Contains(said, "odd") || !strings.Contains(said, "each_test.go") {
				t.Errorf("the panic says %q", said)
			}
		}()
		_, _, _ = each(texts, func(text string) (Row, error) {
			if strings.HasSuffix(text, "500") {
				panic("odd")
			}
			return Row{}, nil
		})
	}()
}
