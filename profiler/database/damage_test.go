package database

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// A file that was cut off anywhere keeps every complete row.
func TestTruncatedAtEveryByte(t *testing.T) {
	rows := someRows(4)
	text := encodeAll(t, rows...)
	ends := lineEnds(text)
	for n := range len(text) + 1 {
		d, damage, err := Decode(text[:n])
		if err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
		// A line is complete even without its line end.
		whole := 0
		for _, end := range ends[1:] {
			if n >= end-1 {
				whole++
			}
		}
		same(t, d, rows[:whole]...)
		_, atEnd := slices.BinarySearch(ends, n)
		_, beforeEnd := slices.BinarySearch(ends, n+1)
		if cut := n > 0 && !atEnd && !beforeEnd; (len(damage) > 0) != cut {
			t.Fatalf("%d bytes: damage %v", n, damage)
		}
		checkRepair(t, text[:n], rows[:whole])
	}
}

// lineEnds are the offsets after the line ends.
func lineEnds(text []byte) (ends []int) {
	for i, c := range text {
		if c == '\n' {
			ends = append(ends, i+1)
		}
	}
	return ends
}

func checkRepair(t *testing.T, data []byte, want []Row) {
	t.Helper()
	repaired, err := Repair(data)
	if err != nil {
		t.Fatal(err)
	}
	d, damage, err := Decode(repaired)
	if err != nil || len(damage) > 0 {
		t.Fatalf("repaired: damage %v, error %v", damage, err)
	}
	same(t, d, want...)
}

// A flipped bit damages only the row that has it, even if it is in a line end.
func TestEveryBitFlipped(t *testing.T) {
	rows := someRows(3)
	text := encodeAll(t, rows...)
	ends := lineEnds(text)
	for i := range text {
		for bit := range 8 {
			data := bytes.Clone(text)
			data[i] ^= 1 << bit
			d, damage, err := Decode(data)
			if err != nil {
				t.Fatalf("byte %d, bit %d: %v", i, bit, err)
			}
			want := slices.Clone(rows)
			line, isEnd := slices.BinarySearch(ends, i+1)
			if line > 0 && !isEnd {
				want = slices.Delete(want, line-1, line)
			}
			same(t, d, want...)
			blank := isEnd && strings.ContainsRune(" \t\r\n", rune(data[i]))
			if len(damage) == 0 && !blank {
				t.Fatalf("byte %d, bit %d: no damage is told", i, bit)
			}
			for _, x := range damage {
				if x.Offset > i || x.Offset+x.Length < i {
					t.Fatalf("byte %d, bit %d: damage is told elsewhere: %v", i, bit, x)
				}
			}
		}
	}
}

// Any byte in place of a line end costs no row, not even a brace.
func TestEveryByteForALinesEnd(t *testing.T) {
	rows := someRows(3)
	text := encodeAll(t, rows...)
	for _, end := range lineEnds(text) {
		for c := range 256 {
			data := bytes.Clone(text)
			data[end-1] = byte(c)
			d, _, err := Decode(data)
			if err != nil {
				t.Fatal(err)
			}
			same(t, d, rows...)
			checkRepair(t, data, rows)
		}
	}
}

// An incomplete write, followed by another process's write, costs only its own row.
func TestTornLineWithinTheFile(t *testing.T) {
	rows := someRows(3)
	text := encodeAll(t, rows...)
	ends := lineEnds(text)
	for cut := ends[1]; cut < ends[2]-1; cut++ {
		data := append(bytes.Clone(text[:cut]), text[ends[2]:]...)
		d, damage, err := Decode(data)
		if err != nil {
			t.Fatal(err)
		}
		same(t, d, rows[0], rows[2])
		if (len(damage) > 0) != (cut > ends[1]) || len(damage) > 0 && damage[0].Line != 3 {
			t.Fatalf("cut at %d: damage %v", cut, damage)
		}
	}
}

func TestDamageIsNamed(t *testing.T) {
	text := encodeAll(t, someRows(5)...)
	lines := bytes.SplitAfter(text, newline)
	lines[2] = []byte("hello\n\n")
	lines[4] = bytes.Replace(lines[4], []byte("Conv"), []byte("Cönv"), 1)
	bad := aRow(7)
	bad.Batch = 3
	line, _ := Encode(bad)
	summed := bytes.Replace(bytes.TrimSuffix(line[overhead:], newline), []byte(`"batch":3`), []byte(`"batch":0`), 1)
	lines[5] = fmt.Appendf(nil, "%s%x%s%s\r\n", begin, sum(summed), between, summed)
	d, damage, err := Decode(bytes.Join(lines, nil))
	if err != nil || d.Len() != 2 || len(damage) != 3 {
		t.Fatalf("%d rows, damage %v, error %v", d.Len(), damage, err)
	}
	for i, want := range []string{"line 3 (5 bytes", "line 6 (", "line 7 ("} {
		if got := damage[i].String(); !strings.Contains(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if !errors.Is(damage[1].Why, errSum) || !strings.Contains(damage[2].String(), "batch 0") {
		t.Errorf("got %v", damage)
	}
}

// Windows line ends are not damage.
func TestCarriageReturns(t *testing.T) {
	text := bytes.ReplaceAll(encodeAll(t, someRows(3)...), newline, []byte("\r\n"))
	if d, damage, err := Decode(text); err != nil || len(damage) > 0 || d.Len() != 3 {
		t.Errorf("damage %v, error %v", damage, err)
	}
}

// For any damage to a file, no row appears that was not there, untouched lines survive,
// and a repaired file has no damage.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("x"), uint64(1))
	f.Add([]byte(begin), uint64(2))
	f.Add([]byte("\x00\x00}\n"), uint64(3))
	f.Fuzz(func(t *testing.T, garbage []byte, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 1))
		rows := someRows(1 + r.IntN(4))
		text := encodeAll(t, rows...)
		lines := bytes.SplitAfter(text, newline)
		// Garbage of lines of its own between whole ones.
		var data []byte
		for _, line := range lines {
			data = append(data, line...)
			if r.IntN(2) == 0 {
				data = append(append(data, garbage...), '\n')
			}
		}
		d, _, err := Decode(data)
		if err != nil {
			t.Fatal(err)
		}
		same(t, d, rows...)
		checkRepair(t, data, rows)
		// Garbage within them.
		if at := r.IntN(len(text)); len(garbage) > 0 {
			data = append(append(bytes.Clone(text[:at]), garbage...), text[at:]...)
		}
		d, _, err = Decode(data)
		if err != nil {
			return
		}
		if d.Len() > len(rows) {
			t.Fatalf("%d rows of %d", d.Len(), len(rows))
		}
		checkRepair(t, data, all(d))
	})
}

func BenchmarkDecode(b *testing.B) {
	text := encodeAll(b, someRows(5000)...)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if d, damage, err := Decode(text); err != nil || len(damage) > 0 || d.Len() != 5000 {
			b.Fatal(damage, err)
		}
	}
}
