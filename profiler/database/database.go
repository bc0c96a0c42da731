package database

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"
)

// Database holds the rows of all engines and machines. A look-up names the engine and
// the machine. The zero value is empty. It is not safe for concurrent use while it
// changes.
type Database struct {
	sets       map[scope]*set
	provenance []Provenance
}

// scope is the engine and the machine of rows.
type scope struct{ engine, machine string }

// set is the rows of one scope.
type set struct {
	// operators maps each operator's key to its rows, sorted by point.order.
	operators map[string][]Row
	rows      int
}

// Add adds a row and reports whether the database now has it. Two rows of the same
// operator, batch, shares and temperature on the same engine and machine exclude each
// other: the row measured later stays, and with equal times the row added later. Add
// does not check the row; see [Row.Validate].
func (d *Database) Add(r Row) bool { return d.add(r) != ignored }

// outcome is the result of adding a row.
type outcome uint8

const (
	ignored  outcome = iota // The database has a newer row.
	inserted                // The database had no such row.
	replaced                // The database had an older row.
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

// share replaces the row's strings by those of a row of the same operator and scope.
// So thousands of rows do not hold as many copies.
func (r *Row) share(of Row) {
	r.Operator, r.Engine, r.Machine = of.Operator, of.Engine, of.Machine
	if r.Family == of.Family {
		r.Family = of.Family
	}
}

// Lookup lists the rows of one operator on one engine and machine, nil if there are
// none. They are sorted by GPU share, CPU share, warm before cold, and batch. The
// caller must not change them.
func (d *Database) Lookup(engine, machine, key string) []Row {
	if s := d.sets[scope{engine, machine}]; s != nil {
		return slices.Clip(s.operators[key])
	}
	return nil
}

// Rows iterates over the rows of one engine and machine, sorted by operator and then
// as in [Database.Lookup].
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

// Machine counts the rows of one engine on one machine.
type Machine struct {
	Engine, Machine string
	// Rows and Operators count all rows and operators, Noisy the rows that are
	// estimates. Families counts the rows of each family.
	Rows, Noisy, Operators int
	Families               map[string]int
	// Oldest and Newest are the times of the first and the last measurement.
	Oldest, Newest time.Time
}

// Machines counts the database's rows by machine and engine, sorted by these.
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
