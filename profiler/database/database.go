package database

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"
)

// Database is all rows, those of other engines and machines included, which are
// kept apart: who asks names the engine and the machine. The zero value is an
// empty one. It is not safe for concurrent use while it changes.
type Database struct {
	sets       map[scope]*set
	provenance []Provenance
}

// scope is what rows hold for.
type scope struct{ engine, machine string }

// set is the rows of one scope.
type set struct {
	// operators has the rows by key, each list in point.order.
	operators map[string][]Row
	rows      int
}

// Add puts a row in. Of two rows of the same operator, batch, shares and
// temperature on the same engine and machine, the one measured later stays, and
// of two of one time the one that was added later. It reports whether the row is
// now in the database. The row is not checked; see [Row.Validate].
func (d *Database) Add(r Row) bool { return d.add(r) != ignored }

// outcome is what became of a row that was added.
type outcome uint8

const (
	ignored  outcome = iota // what was there is newer
	inserted                // there was none
	replaced                // what was there was older
)

func (d *Database) add(r Row) outcome {
	at := scope{r.Engine, r.Machine}
	s := d.sets[at]
	if s == nil {
		s = &set{operators: map[string][]Row{}}
		if d.sets == nil {
			d.sets = map[scope]*set{}
		}
		d.sets[at] = s
	}
	rows := s.operators[r.Operator]
	i, found := slices.BinarySearchFunc(rows, r.point(), func(r Row, p point) int { return r.point().order(p) })
	switch {
	case !found:
		if len(rows) > 0 {
			r.share(rows[0])
		}
		s.operators[r.Operator] = slices.Insert(rows, i, r)
		s.rows++
		return inserted
	case r.MeasuredAt.Before(rows[i].MeasuredAt):
		return ignored
	default:
		r.share(rows[i])
		rows[i] = r
		return replaced
	}
}

// share takes the strings of a row of the same operator and scope, so that
// thousands of rows do not hold as many copies of them.
func (r *Row) share(of Row) {
	r.Operator, r.Engine, r.Machine = of.Operator, of.Engine, of.Machine
	if r.Family == of.Family {
		r.Family = of.Family
	}
}

// Lookup lists the rows of one operator on one engine and machine, by GPU share,
// CPU share, warm before cold, and batch; nil if there is none. The caller must
// not change them.
func (d *Database) Lookup(engine, machine, key string) []Row {
	if s := d.sets[scope{engine, machine}]; s != nil {
		return slices.Clip(s.operators[key])
	}
	return nil
}

// Rows goes through the rows of one engine and machine, by operator and then as
// [Database.Lookup] has them.
func (d *Database) Rows(engine, machine string) iter.Seq[Row] {
	return func(yield func(Row) bool) {
		s := d.sets[scope{engine, machine}]
		if s == nil {
			return
		}
		for _, key := range slices.Sorted(maps.Keys(s.operators)) {
			for _, r := range s.operators[key] {
				if !yield(r) {
					return
				}
			}
		}
	}
}

// Len is the number of rows, of all engines and machines.
func (d *Database) Len() int {
	n := 0
	for _, s := range d.sets {
		n += s.rows
	}
	return n
}

// Machine is what a database holds of one engine on one machine.
type Machine struct {
	Engine, Machine string
	// Rows and Operators are how many there are, Noisy how many of the rows are
	// estimates, Families how many rows each family has.
	Rows, Noisy, Operators int
	Families               map[string]int
	// Oldest and Newest are when the first and the last of the rows was
	// measured.
	Oldest, Newest time.Time
}

// Machines lists what the database has rows of, by machine and engine.
func (d *Database) Machines() []Machine {
	var all []Machine
	for at, s := range d.sets {
		m := Machine{Engine: at.engine, Machine: at.machine, Rows: s.rows, Operators: len(s.operators), Families: map[string]int{}}
		for _, rows := range s.operators {
			for _, r := range rows {
				m.Families[r.Family]++
				m.Noisy += number(r.Noisy)
				if m.Oldest.IsZero() || r.MeasuredAt.Before(m.Oldest) {
					m.Oldest = r.MeasuredAt
				}
				if r.MeasuredAt.After(m.Newest) {
					m.Newest = r.MeasuredAt
				}
			}
		}
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b Machine) int {
		return cmp.Or(cmp.Compare(a.Machine, b.Machine), cmp.Compare(a.Engine, b.Engine))
	})
	return all
}
