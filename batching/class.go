package batching

import "math/bits"

// MaxClasses is the number of classes that the requests of one function may have.
const MaxClasses = 16

// every is the set of all classes.
const every = 1<<MaxClasses - 1

// Serves returns the classes that the instance may answer, as a set.
func (in *Instance) Serves() uint16 {
	if in.Classes == 0 {
		return every
	}
	return in.Classes
}

// lanes puts the classes that the same instances serve into one lane. Requests of one
// lane share a queue, so a function whose instances are all alike has one. A lane's
// number is its lowest class.
type lanes struct {
	of [MaxClasses]uint8
	// all has the numbers of all lanes; inside[i] has the classes of lane i.
	all    uint16
	inside [MaxClasses]uint16
}

// newLanes returns the lanes for instances that serve those sets of classes.
func newLanes(sets []uint16) (l lanes) {
	parts, n := [MaxClasses]uint16{every}, 1
	for _, set := range sets {
		for i := range n {
			if in, out := parts[i]&set, parts[i]&^set; in != 0 && out != 0 {
				parts[i], parts[n] = in, out
				n++
			}
		}
	}
	for _, part := range parts[:n] {
		lane := lowest(part)
		l.all |= 1 << lane
		l.inside[lane] = part
		for rest := part; rest != 0; rest &= rest - 1 {
			l.of[lowest(rest)] = uint8(lane)
		}
	}
	return l
}

// having returns the lanes of those classes.
func (l *lanes) having(classes uint16) (lanes uint16) {
	for rest := classes; rest != 0; rest &= rest - 1 {
		lanes |= 1 << l.of[lowest(rest)]
	}
	return lanes
}

// lowest is the least member of a set that is not empty.
func lowest(set uint16) int { return bits.TrailingZeros16(set) }

// has reports whether i is in the set.
func has(set uint16, i int) bool { return set>>(uint(i)%MaxClasses)&1 != 0 }
