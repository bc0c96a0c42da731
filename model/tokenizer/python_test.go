package tokenizer

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// reference is a tokenizer with what Python's tokenizers makes of texts.
type reference struct {
	name  string
	file  []byte
	cases []referenceCase
}

type referenceCase struct {
	texts        []string
	max          int
	ids, typeIDs []int32
	failed       string
	// sum is the checksum of ids that are left out, 0 if they are there.
	sum uint32
}

// UnmarshalJSON reads a line that reference.py prints.
func (c *referenceCase) UnmarshalJSON(raw []byte) error {
	return json.Unmarshal(raw, &[]any{&c.texts, &c.max, &c.ids, &c.typeIDs, &c.failed, &c.sum})
}

// references reads what reference.py prints.
func references(t testing.TB, r io.Reader) []reference {
	t.Helper()
	var all []reference
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<26)
	for lines.Scan() {
		if line := lines.Bytes(); line[0] == '{' {
			var head struct {
				Name string
				File json.RawMessage
			}
			if err := json.Unmarshal(line, &head); err != nil {
				t.Fatal(err)
			}
			all = append(all, reference{name: head.Name, file: head.File})
			continue
		}
		var c referenceCase
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		last := &all[len(all)-1]
		last.cases = append(last.cases, c)
	}
	if lines.Err() != nil || len(all) == 0 {
		t.Fatal("the references cannot be read: ", lines.Err())
	}
	return all
}

// table returns the checked-in references.
func table(t testing.TB) []reference {
	t.Helper()
	packed, err := os.ReadFile("testdata/cases.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	return references(t, r)
}

func TestTable(t *testing.T) {
	for _, r := range table(t) {
		t.Run(r.name, func(t *testing.T) { compare(t, r) })
	}
}

// maxShown is the number of differences that a test shows for a tokenizer.
const maxShown = 5

// compare encodes the texts of a reference.
func compare(t *testing.T, r reference) {
	t.Helper()
	tokenizer, err := New(r.file, Options{SpecialTokens: true})
	if err != nil {
		t.Fatal(err)
	}
	wrong := 0
	for _, c := range r.cases {
		e, err := tokenizer.encode(c.texts, c.max)
		equal := slices.Equal(e.IDs, c.ids) && slices.Equal(e.TypeIDs, c.typeIDs)
		if c.sum != 0 {
			equal = err == nil && c.sum == checksum(e.IDs)
		}
		if c.failed != "" || err != nil {
			equal = c.failed != "" && err != nil
		}
		if len(c.texts) == 2 {
			query, queryErr := tokenizer.Query(c.texts[0])
			var again Encoding
			if queryErr == nil {
				again, queryErr = query.EncodePair(c.texts[1], c.max)
			}
			equal = equal && slices.Equal(e.IDs, again.IDs) && slices.Equal(e.TypeIDs, again.TypeIDs) && (err == nil) == (queryErr == nil)
		}
		if equal {
			continue
		}
		if wrong++; wrong <= maxShown {
			t.Errorf("%q, at most %d:\ngot  %v %v %v\nwant %v %v %s", c.texts, c.max, e.IDs, e.TypeIDs, err, c.ids, c.typeIDs,
				c.failed)
		}
	}
	if wrong > 0 {
		t.Errorf("%d of %d differ", wrong, len(r.cases))
	}
}

func checksum(ids []int32) uint32 {
	var raw []byte
	for _, id := range ids {
		raw = binary.LittleEndian.AppendUint32(raw, uint32(id))
	}
	return crc32.ChecksumIEEE(raw)
}

// Thousands of texts, and every character, against Python's tokenizers.
func TestAgainstPython(t *testing.T) {
	requirements, err := filepath.Abs("testdata/requirements.txt")
	if err != nil {
		t.Fatal(err)
	}
	python, err := exec.CommandContext(t.Context(), "../../scripts/python.sh", "python", requirements).Output()
	if err != nil {
		t.Skipf("SKIPPED, TOKENIZERS ARE NOT COMPARED WITH PYTHON'S: scripts/python.sh: %v", err)
	}
	c := exec.CommandContext(t.Context(), strings.TrimSpace(string(python)), "testdata/reference.py", "full", "../../docs")
	c.Stderr = os.Stderr
	out, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range references(t, bytes.NewReader(out)) {
		t.Run(r.name, func(t *testing.T) { compare(t, r) })
	}
}
