package database

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"
)

// Damage is a part of a file that is not a complete line. It is not used.
type Damage struct {
	// Line is the line where it begins, from 1, and Offset the byte, from 0.
	// Length is in bytes.
	Line, Offset, Length int
	// Why is the reason.
	Why error
}

// String names the line, the bytes and the reason.
func (d Damage) String() string {
	return fmt.Sprintf("line %d (%d bytes from byte %d): %v", d.Line, d.Length, d.Offset, d.Why)
}

// ErrForeign is wrapped by the error for a file that does not hold operator profiles.
var ErrForeign = errors.New("the file does not hold operator profiles; give one that `faas-infer profile export` wrote")

// Decode reads a file. It leaves out damaged rows and returns them as Damage, in the
// file's order. It keeps all complete rows, even if lines have run together. The error
// is a *NewerError if a line has a newer format, or [ErrForeign]; the database is then
// nil.
func Decode(data []byte) (*Database, []Damage, error) {
	if foreign(data) {
		return nil, nil, ErrForeign
	}
	d := &Database{}
	_, damage, err := d.read(data)
	if err != nil {
		return nil, nil, err
	}
	return d, damage, nil
}

// Append reads data that was appended to the file of d. The error is a *NewerError; d
// may then have a part of data.
func (d *Database) Append(data []byte) ([]Damage, error) {
	_, damage, err := d.read(data)
	return damage, err
}

// Repair returns the file without its damage: a header and the complete lines,
// unchanged. The errors are those of [Decode].
func Repair(data []byte) ([]byte, error) {
	if foreign(data) {
		return nil, ErrForeign
	}
	kept, _, err := (&Database{}).read(data)
	if err != nil {
		return nil, err
	}
	out := Header()
	for _, text := range kept {
		out = append(append(out, text...), '\n')
	}
	return out, nil
}

// read adds the complete lines of data. It returns them without line ends and without
// headers. On an error d may have a part of data.
func (d *Database) read(data []byte) (kept [][]byte, damage []Damage, err error) {
	number, counted := 1, 0
	damaged := func(p piece, why error) {
		number, counted = number+bytes.Count(data[counted:p.start], newline), p.start
		damage = append(damage, Damage{Line: number, Offset: p.start, Length: p.end - p.start, Why: why})
	}
	for p := range pieces(data) {
		l, end, why := decodePiece(data[p.start:p.end])
		if newer := (*NewerError)(nil); errors.As(why, &newer) {
			return nil, nil, why
		}
		if why != nil {
			damaged(p, why)
			continue
		}
		if p.start+end < p.end {
			damaged(piece{p.start + end, p.end}, errIncomplete)
		}
		d.take(l)
		if l.Header == nil {
			kept = append(kept, data[p.start:p.start+end])
		}
	}
	return kept, damage, nil
}

// take adds the content of a line.
func (d *Database) take(l line) {
	switch {
	case l.Row != nil:
		d.add(l.Row.row())
	case l.Provenance != nil && !slices.Contains(d.provenance, *l.Provenance):
		d.provenance = append(d.provenance, *l.Provenance)
	}
}

// decodePiece reads a line and returns its length. It is shorter than text if other
// bytes follow the line.
func decodePiece(text []byte) (line, int, error) {
	l, err := decode(text)
	if !errors.Is(err, errSum) {
		return l, len(text), err
	}
	var object json.RawMessage
	d := json.NewDecoder(bytes.NewReader(text))
	if d.Decode(&object) != nil || len(object) == len(text) {
		return l, len(text), err
	}
	l, err = decode(object)
	return l, len(object), err
}

var newline = []byte{'\n'}

// piece is a part of a file that may be one line, without the line end.
type piece struct{ start, end int }

// pieces cuts a file at the line ends, and wherever a line begins within another one,
// as after an incomplete write or a lost line end. It leaves out white space around
// the pieces.
func pieces(data []byte) iter.Seq[piece] {
	return func(yield func(piece) bool) {
		for at := 0; at < len(data); {
			end := len(data)
			if i := bytes.IndexByte(data[at:], '\n'); i >= 0 {
				end = at + i
			}
			if i := bytes.Index(data[min(at+1, end):end], []byte(begin)); i >= 0 {
				end = at + 1 + i
			}
			start, blank := at, " \t\r\n"
			at = max(end, at+1)
			text := bytes.TrimRight(data[start:end], blank)
			rest := bytes.TrimLeft(text, blank)
			p := piece{start + len(text) - len(rest), start + len(text)}
			if p.start < p.end && !yield(p) {
				return
			}
		}
	}
}

// foreign reports whether data has no sign of a file of operator profiles, damaged or
// not. A file of zeros may be one: a loss of power can leave that.
func foreign(data []byte) bool {
	ours := len(bytes.Trim(data, "\x00")) == 0 || bytes.HasPrefix([]byte(begin), data) ||
		bytes.Contains(data, []byte(begin)) || bytes.Contains(data, []byte(`"header":{`))
	return !ours
}

// Export returns a file with the provenance of the database, p as a further one, and
// the rows of the machines for which keep is true.
func (d *Database) Export(p Provenance, keep func(engine, machine string) bool) ([]byte, error) {
	p.ExportedAt = p.ExportedAt.UTC().Truncate(time.Second)
	out := Header()
	for _, p := range append(slices.Clone(d.provenance), p) {
		text, err := EncodeProvenance(p)
		if err != nil {
			return nil, err
		}
		out = append(out, text...)
	}
	for _, m := range d.Machines() {
		if !keep(m.Engine, m.Machine) {
			continue
		}
		for r := range d.Rows(m.Engine, m.Machine) {
			text, err := Encode(r)
			if err != nil {
				return nil, err
			}
			out = append(out, text...)
		}
	}
	return out, nil
}

// EncodeProvenance returns the line of p, with the line end.
func EncodeProvenance(p Provenance) ([]byte, error) { return encode(line{Provenance: &p}) }

// Provenance lists the origins of the imported rows.
func (d *Database) Provenance() []Provenance { return slices.Clone(d.provenance) }

// Merged counts the rows of a merged database by result.
type Merged struct {
	// Added rows were new. Replaced ones took the place of older rows. Older ones
	// were older than the database's rows, Same ones equal; both changed nothing.
	Added, Replaced, Older, Same int
}

// Merge adds the rows of other, of all engines and machines, and their provenance. It
// returns the rows that are new in d, sorted by machine, engine and operator.
func (d *Database) Merge(other *Database) (Merged, []Row) {
	var m Merged
	var taken []Row
	for _, of := range other.Machines() {
		for r := range other.Rows(of.Engine, of.Machine) {
			if d.has(r) {
				m.Same++
				continue
			}
			switch d.add(r) {
			case ignored:
				m.Older++
				continue
			case inserted:
				m.Added++
			case replaced:
				m.Replaced++
			}
			taken = append(taken, r)
		}
	}
	for _, p := range other.provenance {
		if !slices.Contains(d.provenance, p) {
			d.provenance = append(d.provenance, p)
		}
	}
	return m, taken
}

// has reports whether the database has an equal row.
func (d *Database) has(r Row) bool {
	rows := d.Lookup(r.Engine, r.Machine, r.Operator)
	i, found := slices.BinarySearchFunc(rows, r.point(), func(r Row, p point) int { return r.point().order(p) })
	if !found {
		return false
	}
	same := rows[i].MeasuredAt.Equal(r.MeasuredAt)
	r.MeasuredAt = rows[i].MeasuredAt
	return same && r == rows[i]
}
