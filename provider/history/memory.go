package history

import "time"

// kept is for how many seconds a remedy and the shortest objective stay as they were first shown.
const kept = 30

// Memory is what is remembered of a function, so that its sentence and its remedy do not change with every second. The
// zero Memory remembers nothing. It is not safe for concurrent use.
type Memory struct {
	// worst is the situation in the second worstAt, in which bad requests were not in time.
	worst   *Situation
	bad     uint64
	worstAt int64
	// least is the shortest objective as it was at the second leastAt, and remedy was given in the second givenAt.
	least            time.Duration
	leastAt, givenAt int64
	remedy           Remedy
}

// Note notes the situation at the end of a second, in which bad requests were not in time. at is in seconds since 1970.
func (m *Memory) Note(at int64, bad uint64, s Situation) {
	if bad > 0 && (bad > m.bad || at-m.worstAt >= minute) {
		m.worst, m.bad, m.worstAt = &s, bad, at
	}
}

// Judge is [Judge] with what is remembered. As long as the function misses its objective, the reason is that of the
// minute's worst second, and a remedy that was given stays for a while.
func (m *Memory) Judge(at int64, s Situation) Verdict {
	if m.least == 0 || s.Least == 0 || at-m.leastAt >= kept || s.Lack == TooSlow && m.least <= s.Objective {
		m.least, m.leastAt = s.Least, at
	}
	s.Least, s.Worst = m.least, m.worst
	v := Judge(s)
	switch {
	case v.Remedy == nil || v.State != Misses && v.State != Broken:
	case m.remedy != (Remedy{}) && m.remedy.Label != showWhy && at-m.givenAt < kept:
		given := m.remedy
		v.Remedy = &given
	default:
		m.remedy, m.givenAt = *v.Remedy, at
	}
	return v
}
